-- What a merge handler finds beside the language itself. It runs before the program, with all of the libraries; what is
-- not left in the table of globals at its end is out of the program's reach.
--
-- Every function here gives the same result at every site: `pairs` goes in the order of the keys, `sort` is stable and
-- draws no lots, no text shows an address. None of them can run for long without executing instructions, which are counted:
-- so there are no patterns, and no `table.move`.

local next, type, error, tostring, select, unpack = next, type, error, tostring, select, unpack
local format, find, sub, gsub, rep = string.format, string.find, string.sub, string.gsub, string.rep
local sorted_keys = sorted_keys

local function less(a, b)
  return a < b
end

-- Merge sort, from pairs of runs to the whole.
local function sort(list, is_before)
  is_before = is_before or less
  local from, to, size, width = list, {}, #list, 1
  while width < size do
    for start = 1, size, 2 * width do
      local left, right, place = start, start + width, start
      local left_end, right_end = start + width, start + 2 * width
      if left_end > size + 1 then left_end = size + 1 end
      if right_end > size + 1 then right_end = size + 1 end
      while place < right_end do
        if left < left_end and (right >= right_end or not is_before(from[right], from[left])) then
          to[place] = from[left]
          left = left + 1
        else
          to[place] = from[right]
          right = right + 1
        end
        place = place + 1
      end
    end
    from, to, width = to, from, 2 * width
  end
  if from ~= list then
    for place = 1, size do
      list[place] = from[place]
    end
  end
end

local function pairs_in_order(map)
  local keys = sorted_keys(map)
  local place = 0
  return function()
    while true do
      place = place + 1
      local key = keys[place]
      if key == nil then
        return nil
      end
      local value = map[key]
      if value ~= nil then
        return key, value
      end
    end
  end
end

local function text(value)
  local kind = type(value)
  if kind == "table" or kind == "function" or kind == "userdata" then
    return kind
  end
  return tostring(value)
end

local function formatted(pattern, ...)
  if find(gsub(pattern, "%%%%", ""), "%%[-+ #0-9.]*p") then
    error("%p would show an address")
  end
  local values = { ... }
  for place = 1, select("#", ...) do
    if type(values[place]) ~= "number" then
      values[place] = text(values[place])
    end
  end
  return format(pattern, unpack(values, 1, select("#", ...)))
end

-- A search may look at all of `part` at every place of `whole`.
local function check_length(whole, part)
  local size = #(part .. "")
  if size > 1 and #(whole .. "") * size > 2 ^ 30 then
    error("two texts are too long for a search of one in the other")
  end
end

-- The text so many times, with another between. Nothing at all is not repeated: that takes long, too.
local function repeated(whole, times, separator)
  local each = whole .. (separator or "")
  if each == "" or times < 1 then
    return ""
  end
  if #each * times > 2 ^ 30 then
    error("the text is too long")
  end
  return rep(each, times - 1) .. whole
end

local function to_integer(value)
  return type(value) == "number" and value % 1 == 0 and value or nil
end

local function pack(...)
  return { n = select("#", ...), ... }
end

-- Where `part` is in `whole`, from a place on; no pattern.
local function find_plain(whole, part, from)
  check_length(whole, part)
  return find(whole, part, from, true)
end

local function split(whole, separator)
  if separator == "" then
    error("nothing separates everywhere")
  end
  check_length(whole, separator)
  local parts, from = {}, 1
  while true do
    local first, last = find(whole, separator, from, true)
    if not first then
      parts[#parts + 1] = sub(whole, from)
      return parts
    end
    parts[#parts + 1] = sub(whole, from, first - 1)
    from = last + 1
  end
end

local kept = {
  [string] = { "byte", "char", "len", "lower", "reverse", "sub", "upper" },
  [table] = { "concat", "insert", "remove" },
  [math] = { "abs", "ceil", "floor", "fmod", "huge", "max", "min", "pi", "sqrt" },
}
for library, names in next, kept do
  local functions = {}
  for _, name in ipairs(names) do
    functions[name] = library[name]
  end
  for name in next, library do
    library[name] = nil
  end
  for name, value in next, functions do
    library[name] = value
  end
end
string.find, string.format, string.rep, string.split = find_plain, formatted, repeated, split
table.sort, table.pack, table.unpack, math.tointeger = sort, pack, unpack, to_integer

local globals = {
  assert = assert, error = error, ipairs = ipairs, json = json, math = math, pairs = pairs_in_order, select = select,
  string = string, table = table, tonumber = tonumber, tostring = text, type = type,
}
local all = _G
for name in next, all do
  all[name] = nil
end
for name, value in next, globals do
  all[name] = value
end
