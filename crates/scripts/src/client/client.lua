-- What a script of a client finds beside Lua 5.1 itself: what Redis gives to scripts.
--
-- It runs once for each interpreter. Scripts run in it one after the other and leave nothing behind: they see their globals
-- and libraries through tables that cannot be written. It returns the function that runs a script.
--
-- A function of C executes nothing that is counted: those that may take long are called in pieces, or count what they do. A
-- function of C that raises an error is not called in a `return`, so that the error knows its name. An error that names a
-- line of this file is told with the script's (`text_of`).

local host, text, cjson, cmsgpack, bit, struct = ...
local count, line, text_of, is_used_up, is_native =
  host.count, host.line, host.text_of, host.is_used_up, host.is_native
local getmetatable, setmetatable, rawget, rawset, next, pairs = getmetatable, setmetatable, rawget, rawset, next, pairs
local error, pcall, xpcall, select, type, tostring, unpack = error, pcall, xpcall, select, type, tostring, unpack
local load, setfenv, collectgarbage, floor = load, setfenv, collectgarbage, math.floor
local byte, sub = string.byte, string.sub

-- How many elements a function of C handles at once.
local PIECE = 1000
-- How many bytes a function of C handles in the time of an instruction.
local BYTES_PER_STEP = 16
-- How many bytes of source Lua reads at once.
local SOURCE_PIECE = 16384

-- The tables that scripts must not change, by those that they see.
local protected = setmetatable({}, { __mode = "k" })

local function refuse()
  error("Attempt to modify a readonly table", 2)
end

local function readonly(library)
  local seen = setmetatable({}, { __index = library, __newindex = refuse, __metatable = false })
  protected[seen] = library
  return seen
end

local function missing(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end

-- Strings ---------------------------------------------------------------------------------------------------------------

-- A function of C is about to read this, or has made it.
local function count_text(value)
  if type(value) == "string" and #value > PIECE then
    count(#value / BYTES_PER_STEP)
  end
end

local format = string.format

text.format = function(...)
  local formatted = format(...)
  count_text(formatted)
  return formatted
end

local next_match, gsub, gmatch = text.next_match, text.gsub, text.gmatch

-- The next match, with what it is replaced by.
local function replacement_of(replacement, first, last, ...)
  if not first then
    return nil
  end
  if type(replacement) == "function" then
    return first, last, (replacement(...))
  end
  return first, last, replacement[(...)]
end

local function replaced_by(subject, pattern, replacement, most)
  local anchored, parts, done, from = sub(pattern, 1, 1) == "^", {}, 0, 1
  if anchored then
    pattern = sub(pattern, 2)
  end
  while done < most do
    local first, last, value = replacement_of(replacement, next_match(subject, pattern, from, anchored))
    if not first then
      break
    end
    done = done + 1
    local kind = type(value)
    if not value then
      value = sub(subject, first, last)
    elseif kind ~= "string" and kind ~= "number" then
      error("invalid replacement value (a " .. kind .. ")")
    end
    parts[#parts + 1] = sub(subject, from, first - 1)
    parts[#parts + 1] = value
    from = last + 1
    if last < first then
      if first > #subject then
        break
      end
      parts[#parts + 1] = sub(subject, first, first)
      from = first + 1
    end
    if anchored then
      break
    end
  end
  parts[#parts + 1] = sub(subject, from)
  return table.concat(parts), done
end

text.gsub = function(...)
  local subject, pattern, replacement, most = ...
  local kind = type(replacement)
  if kind ~= "function" and kind ~= "table" then
    return gsub(...)
  end
  -- Nothing is replaced: only the arguments are looked at.
  subject = gsub(subject, pattern, "", 0)
  most = most == nil and #subject + 1 or floor(most)
  local result, done = replaced_by(subject, pattern .. "", replacement, most)
  return result, done
end

text.gmatch = function(...)
  local subject, pattern = gmatch(...)
  local from = 1
  local function advance(first, last, ...)
    if not first then
      return nil
    end
    from = last < first and first + 1 or last + 1
    return ...
  end
  return function()
    if from > #subject + 1 then
      return nil
    end
    return advance(next_match(subject, pattern, from))
  end
end
text.gfind, text.next_match = text.gmatch, nil

for name, call in next, text do
  string[name] = call
end
string.dump = nil
getmetatable("").__metatable = false

-- Tables ----------------------------------------------------------------------------------------------------------------

local insert, remove, concat, sort = table.insert, table.remove, table.concat, table.sort

-- Elements are about to be moved from this place on.
local function count_moved(list, place)
  if type(list) == "table" and type(place) == "number" and #list - place > PIECE then
    count(#list - place)
  end
end

table.insert = function(...)
  local list, place = ...
  if protected[list or 0] then
    error("Attempt to modify a readonly table", 0)
  end
  if select("#", ...) == 3 then
    count_moved(list, place)
  end
  insert(...)
end

table.remove = function(...)
  count_moved(...)
  local removed = remove(...)
  return removed
end

table.concat = function(...)
  local list, separator, first, last = ...
  if type(list) ~= "table" or first ~= nil or #list <= PIECE then
    local joined = concat(...)
    return joined
  end
  local pieces = {}
  last = last or #list
  for from = 1, last, PIECE do
    pieces[#pieces + 1] = concat(list, separator, from, from + PIECE - 1 < last and from + PIECE - 1 or last)
  end
  local joined = concat(pieces, separator)
  return joined
end

local function less(a, b)
  return a < b
end

table.sort = function(...)
  local list, is_less = ...
  if type(list) == "table" and #list > PIECE then
    if is_less == nil then
      is_less = less
    elseif type(is_less) == "function" and is_native(is_less) then
      local native = is_less
      is_less = function(a, b) return native(a, b) end
    end
    sort(list, is_less)
  else
    sort(...)
  end
end

table.maxn = function(list)
  if type(list) ~= "table" then
    error("bad argument #1 to 'maxn' (table expected, got " .. (list == nil and "no value" or type(list)) .. ")")
  end
  local most = 0
  for key in next, list do
    if type(key) == "number" and key > most then
      most = key
    end
  end
  return most
end

-- The base library ------------------------------------------------------------------------------------------------------

local function settle(ok, ...)
  if ok then
    return true, ...
  end
  -- Nobody goes on after the end of the instructions.
  if is_used_up() then
    error(..., 0)
  end
  return false, text_of((...))
end

-- As in Redis, what `pcall` catches of an error reply is its text.
local function flatten(ok, ...)
  local reason = ...
  if not ok and type(reason) == "table" and type(rawget(reason, "err")) == "string" then
    return false, reason.err
  end
  return ok, ...
end

-- Where the limit is reached, the handler would run uncounted.
local function xpcall_with(call, handler)
  return settle(xpcall(call, function(reason)
    if is_used_up() then
      return reason
    end
    return handler(text_of(reason))
  end))
end

local function set_metatable(...)
  local object, meta = ...
  if protected[object or 0] then
    error("Attempt to modify a readonly table", 0)
  end
  setmetatable(object, select(2, ...))
  return object
end

local function raw_set(...)
  local object = ...
  if protected[object or 0] then
    error("Attempt to modify a readonly table", 0)
  end
  rawset(...)
  return object
end

local function raw_get(object, ...)
  local value = rawget(protected[object or 0] or object, ...)
  return value
end

local function next_of(object, ...)
  return next(protected[object or 0] or object, ...)
end

local function pairs_of(...)
  local object = ...
  if protected[object or 0] then
    return next_of, object, nil
  end
  if type(object) ~= "table" then
    local given = select("#", ...) == 0 and "no value" or type(object)
    error("bad argument #1 to 'pairs' (table expected, got " .. given .. ")")
  end
  return next, object, nil
end

local environment

-- Code that is compiled already could do anything.
local function refuse_binary(piece)
  if byte(piece) == 27 then
    error("attempt to load a binary chunk", 0)
  end
  return piece
end

-- Compiles what a function gives piece by piece.
local function compile(read, name)
  local begun = false
  local chunk, reason = load(function()
    local piece = read()
    if not begun and type(piece) == "string" and piece ~= "" then
      begun = true
      refuse_binary(piece)
    end
    if type(piece) == "string" then
      count(#piece)
    end
    return piece
  end, name)
  if not chunk then
    if is_used_up() then
      error(reason, 0)
    end
    return nil, text_of(reason)
  end
  return setfenv(chunk, environment)
end

local function load_string(source, name)
  if type(source) ~= "string" then
    error("bad argument #1 to 'loadstring' (string expected, got " .. type(source) .. ")")
  end
  local from = 1
  return compile(function()
    local piece = sub(source, from, from + SOURCE_PIECE - 1)
    from = from + SOURCE_PIECE
    return piece
  end, name or source)
end

local function load_function(read, name)
  if type(read) ~= "function" then
    error("bad argument #1 to 'load' (function expected, got " .. type(read) .. ")")
  end
  return compile(read, name or "=(load)")
end

local function to_number(...)
  count_text((...))
  local number = tonumber(...)
  return number
end

-- Memory is collected when it is needed: all of it at once takes long.
local function collect(option)
  return option == "count" and collectgarbage("count") or 0
end

local resume = coroutine.resume
coroutine.resume = function(...)
  return settle(resume(...))
end

-- Redis -----------------------------------------------------------------------------------------------------------------

local function located(reason)
  if rawget(reason, "line") == nil then
    reason.source, reason.line = host.source(), line()
  end
  return reason
end

local function fail_with(reason)
  error(located({ err = "ERR " .. reason }), 0)
end

local function argument_of(given, value)
  if given ~= 1 or type(value) ~= "string" then
    return nil, { err = "ERR wrong number or type of arguments" }
  end
  return value
end

local REPL_ALL = 3

local redis = {
  call = host.call,
  pcall = host.pcall,
  error_reply = function(...)
    local reason, wrong = argument_of(select("#", ...), ...)
    count_text(reason)
    return wrong or { err = host.error_text(reason) }
  end,
  status_reply = function(...)
    local status, wrong = argument_of(select("#", ...), ...)
    return wrong or { ok = status }
  end,
  sha1hex = function(...)
    if select("#", ...) ~= 1 then
      fail_with("wrong number of arguments")
    end
    count_text((...))
    return host.sha1hex((...))
  end,
  log = function(level, ...)
    if select("#", ...) < 1 then
      fail_with("redis.log() requires two arguments or more.")
    end
    if type(level) ~= "number" then
      fail_with("First argument must be a number (log level).")
    end
    if level < 0 or level > 3 then
      fail_with("Invalid debug level.")
    end
    local words = { ... }
    for place = 1, select("#", ...) do
      words[place] = tostring(words[place])
    end
    words = concat(words, " ")
    count_text(words)
    host.log(level, words)
  end,
  setresp = function(...)
    local wanted = ...
    if select("#", ...) ~= 1 then
      fail_with("redis.setresp() requires one argument.")
    end
    if wanted ~= 2 and wanted ~= 3 then
      fail_with("RESP version must be 2 or 3.")
    end
    host.set_version(wanted)
  end,
  acl_check_cmd = function(...)
    if select("#", ...) == 0 then
      fail_with("Please specify at least one argument for this redis lib call")
    end
    local may = host.may(...)
    if may == nil then
      fail_with("Invalid command passed to redis.acl_check_cmd()")
    end
    return may
  end,
  -- All that a script writes is replicated, or nothing.
  set_repl = function(...)
    local flags = ...
    if select("#", ...) ~= 1 then
      fail_with("redis.set_repl() requires two arguments.")
    end
    if type(flags) ~= "number" or flags < 0 or flags > REPL_ALL then
      fail_with("Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.")
    end
    if flags ~= REPL_ALL then
      fail_with("this server replicates all that a script writes")
    end
  end,
  replicate_commands = function() return true end,
  breakpoint = function() return false end,
  debug = function() end,
  REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = REPL_ALL,
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  REDIS_VERSION = "7.0.15", REDIS_VERSION_NUM = 0x0007000f,
}

-- What scripts see ------------------------------------------------------------------------------------------------------

local globals = {
  _VERSION = _VERSION, assert = assert, collectgarbage = collect, error = error,
  gcinfo = function() return floor(collectgarbage("count")) end,
  getmetatable = getmetatable, ipairs = ipairs, load = load_function, loadstring = load_string, next = next_of,
  pairs = pairs_of, pcall = function(...) return flatten(settle(pcall(...))) end, rawequal = rawequal, rawget = raw_get,
  rawset = raw_set, select = select, setmetatable = set_metatable, tonumber = to_number, tostring = tostring, type = type,
  unpack = unpack,
  xpcall = xpcall_with,
}
local libraries = {
  bit = bit, cjson = cjson, cmsgpack = cmsgpack, coroutine = coroutine, math = math, redis = redis, string = string,
  struct = struct, table = table,
}
for name, library in next, libraries do
  globals[name] = readonly(library)
end
environment = readonly(setmetatable(globals, { __index = missing }))
globals._G = environment

local function fail(reason)
  reason = text_of(reason)
  if type(reason) ~= "table" then
    reason = { err = "ERR " .. tostring(reason) }
  end
  return located(reason)
end

local function run(script)
  return xpcall(script, fail)
end

-- Functions -------------------------------------------------------------------------------------------------------------

-- What the library that is being loaded has registered; nil while none is.
local registered

local FLAGS = {
  ["no-writes"] = true, ["allow-oom"] = true, ["allow-stale"] = true, ["no-cluster"] = true,
  ["allow-cross-slot-keys"] = true,
}

local function is_text(value)
  return type(value) == "string" or type(value) == "number"
end

local function flags_of(given)
  if type(given) ~= "table" then
    fail_with("flags argument to redis.register_function must be a table representing function flags")
  end
  local flags = {}
  for place = 1, #given do
    local flag = is_text(given[place]) and string.lower(given[place])
    if not FLAGS[flag] then
      fail_with("unknown flag given")
    end
    flags[place] = flag
  end
  return flags
end

-- What the table form of `register_function` says.
local function named_arguments(given)
  local name, entry = nil, { flags = {} }
  for key, value in next, given do
    if not is_text(key) then
      fail_with("named argument key given to redis.register_function is not a string")
    end
    key = string.lower(key)
    if key == "function_name" or key == "description" then
      if not is_text(value) then
        fail_with(key .. " argument given to redis.register_function must be a string")
      elseif key == "description" then
        entry.description = tostring(value)
      else
        name = tostring(value)
      end
    elseif key == "callback" then
      if type(value) ~= "function" then
        fail_with("callback argument given to redis.register_function must be a function")
      end
      entry.callback = value
    elseif key == "flags" then
      entry.flags = flags_of(value)
    else
      fail_with("unknown argument given to redis.register_function")
    end
  end
  if not name then
    fail_with("redis.register_function must get a function name argument")
  elseif not entry.callback then
    fail_with("redis.register_function must get a callback argument")
  end
  return name, entry
end

local function register(...)
  local given, name, callback = select("#", ...), ...
  local entry
  if given < 1 or given > 2 then
    fail_with("wrong number of arguments to redis.register_function")
  elseif not registered then
    fail_with("redis.register_function can only be called on FUNCTION LOAD command")
  elseif given == 1 then
    if type(name) ~= "table" then
      fail_with("calling redis.register_function with a single argument is only applicable to Lua table "
        .. "(representing named arguments).")
    end
    name, entry = named_arguments(name)
  elseif not is_text(name) then
    fail_with("first argument to redis.register_function must be a string")
  elseif type(callback) ~= "function" then
    fail_with("second argument to redis.register_function must be a function")
  else
    name, entry = tostring(name), { callback = callback, flags = {} }
  end
  if string.find(name, "[^%w_]") or name == "" then
    fail_with(host.wrong_name)
  elseif registered[name] then
    fail_with("Function already exists in the library")
  end
  registered[name] = entry
end

-- A library that is being loaded sees this and nothing else.
local loading = setmetatable({
  redis = readonly(setmetatable({
    register_function = register, log = redis.log, LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
    REDIS_VERSION = redis.REDIS_VERSION, REDIS_VERSION_NUM = redis.REDIS_VERSION_NUM,
  }, { __index = missing })),
}, { __index = missing })

-- What libraries see: first that, and what functions see when one is called.
local stage = { __newindex = refuse, __metatable = false }
local library_environment = setmetatable({}, stage)
local function_redis, function_globals = {}, setmetatable({}, { __index = missing })
for name, value in next, redis do
  function_redis[name] = value
end
function_redis.breakpoint, function_redis.debug, function_redis.replicate_commands = nil, nil, nil
for name, value in next, globals do
  function_globals[name] = value
end
function_globals.redis, function_globals._G = readonly(function_redis), library_environment
protected[library_environment] = function_globals

-- Loads a library on trial: true and what it registers, or false and an error.
local function load_library(library)
  registered, stage.__index = {}, loading
  local ok, reason = xpcall(library, fail)
  local functions = registered
  registered, stage.__index = nil, function_globals
  return ok, ok and functions or reason
end

-- Calls a function of a library. Its variables begin anew in every call, whoever else has called it.
local function call_function(library, name, keys, arguments)
  local ok, functions = load_library(library)
  if not ok then
    return false, functions
  end
  local callback = functions[name] and functions[name].callback
  return xpcall(function() return callback(keys, arguments) end, fail)
end

return run, environment, globals, call_function, load_library, library_environment
