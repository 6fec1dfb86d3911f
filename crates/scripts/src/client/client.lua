-- What a script of a client finds beside the language itself: what Redis gives to scripts in Lua 5.1, in Lua 5.4.
--
-- It runs once for each interpreter. Scripts run in it one after the other and leave nothing behind: they see their globals
-- and libraries through tables that cannot be written. It returns the function that runs a script.

local host, cjson, cmsgpack, bit, struct = ...
local yield, isyieldable = coroutine.yield, coroutine.isyieldable
local line, text_of, is_used_up = host.line, host.text_of, host.is_used_up
local getmetatable, setmetatable, rawget, rawset, next = getmetatable, setmetatable, rawget, rawset, next
local error, pcall, xpcall, select, type, tostring, load = error, pcall, xpcall, select, type, tostring, load
local format, rep, gsub = string.format, string.rep, string.gsub
local mathtype, tointeger, floor, ceil = math.type, math.tointeger, math.floor, math.ceil
local seed = math.randomseed

-- Tables that scripts must not change.
local protected = setmetatable({}, { __mode = "k" })

local function refuse()
  error("Attempt to modify a readonly table", 2)
end

local function readonly(library, missing)
  if missing then
    setmetatable(library, { __index = missing })
  end
  local seen = setmetatable({}, { __index = library, __newindex = refuse, __metatable = false })
  protected[seen] = true
  return seen
end

local function missing(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end

-- Strings ---------------------------------------------------------------------------------------------------------------

-- A float that is a whole number is written without its fraction, as in Lua 5.1.
local function text(value)
  if mathtype(value) == "float" and value == floor(value) and value - value == 0 then
    return format("%.14g", value)
  end
  return tostring(value)
end

-- `%d` and its like cut a fraction off, as in Lua 5.1.
local function formatted(pattern, ...)
  local count, floats = select("#", ...), false
  for place = 1, count do
    floats = floats or mathtype((select(place, ...))) == "float"
  end
  if not floats then
    return format(pattern, ...)
  end
  local values, place = { ... }, 0
  gsub(pattern, "%%[-+ #0-9.]*([%a%%])", function(kind)
    if kind ~= "%" then
      place = place + 1
      local value = values[place]
      if mathtype(value) ~= "float" then
        return
      end
      if kind == "d" or kind == "i" or kind == "c" or kind == "x" or kind == "X" or kind == "o" then
        values[place] = tointeger(value < 0 and ceil(value) or floor(value)) or value
      elseif kind == "s" then
        values[place] = text(value)
      end
    end
  end)
  return format(pattern, table.unpack(values, 1, count))
end

-- Nothing at all is not repeated: that takes long, and executes nothing that is counted.
local function repeated(whole, times, separator)
  if whole .. (separator or "") == "" then
    return ""
  end
  return rep(whole, times, separator)
end

string.format, string.rep, string.dump = formatted, repeated, nil
getmetatable("").__metatable = false

-- Tables ----------------------------------------------------------------------------------------------------------------

-- These would take a table at its word for its length.
local function of_plain_table(change)
  return function(list, ...)
    local meta = type(list) == "table" and host.metatable(list)
    if meta and rawget(meta, "__len") ~= nil then
      error("a table that says how long it is cannot be changed so", 2)
    end
    return change(list, ...)
  end
end

local function maxn(list)
  local most = 0
  for key in next, list do
    if type(key) == "number" and key > most then
      most = key
    end
  end
  return most
end

table.insert, table.remove = of_plain_table(table.insert), of_plain_table(table.remove)
table.move = nil
table.getn = function(list) return #list end
table.maxn = maxn
math.pow = function(base, exponent) return base ^ exponent end
math.log10 = function(value) return math.log(value, 10) end
math.mod = math.fmod

-- The base library ------------------------------------------------------------------------------------------------------

local function settle(call, ok, ...)
  if ok then
    return true, ...
  end
  -- Nobody goes on after the end of the instructions.
  if is_used_up() then
    error(..., 0)
  end
  local reason = ...
  if type(reason) == "userdata" then
    reason = text_of(reason, call)
  end
  return false, reason
end

-- As in Redis, what `pcall` catches of an error reply is its text.
local function flatten(ok, ...)
  local reason = ...
  if not ok and type(reason) == "table" and rawget(reason, "err") ~= nil then
    return false, reason.err
  end
  return ok, ...
end

local function protected_call(call, ...)
  return flatten(settle(call, pcall(call, ...)))
end

local function protected_call_with(call, handler, ...)
  return settle(call, xpcall(call, handler, ...))
end

-- A finalizer would run unwatched.
local function set_metatable(object, meta)
  if protected[object] then
    error("Attempt to modify a readonly table", 2)
  end
  if type(meta) == "table" and rawget(meta, "__gc") ~= nil then
    error("scripts have no finalizers", 2)
  end
  return setmetatable(object, meta)
end

local function raw_set(object, key, value)
  if protected[object] then
    error("Attempt to modify a readonly table", 2)
  end
  return rawset(object, key, value)
end

local environment

local function load_text(chunk, name)
  return load(chunk, name or "@user_script", "t", environment)
end

-- Redis -----------------------------------------------------------------------------------------------------------------

-- Which protocol's replies the script asked for.
local version

local function located(reason)
  if rawget(reason, "line") == nil then
    reason.source, reason.line = "@user_script", line()
  end
  return reason
end

-- Asks for a command, and stands still until there is a reply.
local function ask(...)
  if not isyieldable() then
    error("a function that table.sort or string.gsub calls cannot call Redis", 3)
  end
  return yield(version, ...)
end

local function protected_redis_call(...)
  return ask(...)
end

local function redis_call(...)
  local answer = ask(...)
  if type(answer) == "table" and rawget(answer, "err") ~= nil then
    error(located(answer), 0)
  end
  return answer
end

local function argument_of(name, count, value)
  if count ~= 1 or type(value) ~= "string" then
    return nil, { err = "ERR wrong number or type of arguments" }
  end
  return value
end

local redis = {
  call = redis_call,
  pcall = protected_redis_call,
  error_reply = function(...)
    local reason, wrong = argument_of("error_reply", select("#", ...), ...)
    return wrong or { err = host.error_text(reason) }
  end,
  status_reply = function(...)
    local status, wrong = argument_of("status_reply", select("#", ...), ...)
    return wrong or { ok = status }
  end,
  sha1hex = function(...)
    if select("#", ...) ~= 1 then
      error("wrong number of arguments", 0)
    end
    return host.sha1hex((...))
  end,
  log = function(level, ...)
    if select("#", ...) < 1 then
      error("redis.log() requires two arguments or more.", 0)
    end
    if mathtype(level) == nil or level < 0 or level > 3 then
      error("Invalid debug level.", 0)
    end
    local words = { ... }
    for place = 1, select("#", ...) do
      words[place] = text(words[place])
    end
    host.log(level, table.concat(words, " "))
  end,
  setresp = function(...)
    local wanted = ...
    if select("#", ...) ~= 1 then
      error("redis.setresp() requires one argument.", 0)
    end
    if wanted ~= 2 and wanted ~= 3 then
      error("RESP version must be 2 or 3.", 0)
    end
    version = tointeger(wanted)
  end,
  replicate_commands = function() return true end,
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  REDIS_VERSION = "7.0.15", REDIS_VERSION_NUM = 0x0007000f,
}

-- What scripts see ------------------------------------------------------------------------------------------------------

local globals = {
  _VERSION = _VERSION, assert = assert, error = error, getmetatable = getmetatable, ipairs = ipairs, load = load_text,
  loadstring = load_text, next = next, pairs = pairs, pcall = protected_call, rawequal = rawequal, rawget = rawget,
  rawlen = rawlen, rawset = raw_set, select = select, setmetatable = set_metatable, tonumber = tonumber, tostring = text,
  type = type, unpack = table.unpack, xpcall = protected_call_with,
}
local libraries = {
  bit = bit, cjson = cjson, cmsgpack = cmsgpack, math = math, redis = redis, string = string, struct = struct, table = table,
}
for name, library in next, libraries do
  globals[name] = readonly(library)
end
environment = readonly(globals, missing)
globals._G = environment

local function fail(reason)
  if type(reason) ~= "table" then
    if type(reason) == "userdata" then
      reason = text_of(reason)
    end
    reason = { err = "ERR " .. tostring(reason) }
  end
  return located(reason)
end

local function run(script, keys, arguments)
  version = 2
  seed(0)
  return xpcall(script, fail, keys, arguments)
end

return run, environment
