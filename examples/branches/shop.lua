-- Settles by itself what shop.py's customers bought on several branches: the merge handler of the keyspace.
--
--     KEYSPACE CREATE shop MODEL branch MERGE handler HANDLER "$(cat shop.lua)"
--
-- The same rules as `Shop.settle`: what was sold twice is cancelled, put back and apologised for, in one state; who does
-- not get a board game is spared its extension (TARDiS, figure 4). What is left is counted anew from what was received and
-- what is still ordered: sites that merge the same branches at once may cancel the same order, and it comes back once.

function merge(keys)
  local conflicting = {}
  for _, key in ipairs(keys) do
    conflicting[key] = true
  end

  local function fields(value)
    return value and value.value or {}
  end

  -- Where two merges cancelled one order for different reasons, the first by its text is given.
  local has_joined = false
  local function joined(fork, branches)
    has_joined = true
    local all, before = {}, fields(fork)
    for _, branch in ipairs(branches) do
      for field, text in pairs(fields(branch)) do
        local is_gone = false
        for _, other in ipairs(branches) do
          is_gone = is_gone or before[field] and not fields(other)[field]
        end
        if not is_gone and (not all[field] or text < all[field]) then
          all[field] = text
        end
      end
    end
    return all
  end

  -- A hash after the merge, by the type's rule where that decides: what was received is added up, orders and apologies have
  -- a field each.
  local function hash(key)
    if not conflicting[key] then
      return fields(read(key))
    end
    local changed = conflict(key)
    if changed.merged ~= nil then
      return fields(changed.merged)
    end
    return joined(changed.fork, changed.branches)
  end

  local stock, needs, apologies = {}, hash("needs"), hash("apologies")
  local texts, orders, has_cancelled = hash("orders"), {}, false
  for item, count in pairs(hash("received")) do
    stock[item] = math.tointeger(tonumber(count))
  end
  for order, text in pairs(texts) do
    orders[order] = json.decode(text)
    for _, item in ipairs(orders[order].items) do
      stock[item] = stock[item] - 1
    end
  end

  local function cancel(order, reason)
    local content = orders[order]
    orders[order] = nil
    for _, item in ipairs(content.items) do
      stock[item] = stock[item] + 1
    end
    content.reason = reason
    apologies[order], has_cancelled = json.encode(content), true
  end

  -- The orders of every item, by name, and how often every customer has an item in them.
  local orders_of, has, lost = {}, {}, {}
  local function count(counts, content, by)
    local own = counts[content.customer] or {}
    counts[content.customer] = own
    for _, item in ipairs(content.items) do
      own[item] = (own[item] or 0) + by
    end
  end
  for order, content in pairs(orders) do
    count(has, content, 1)
    for _, item in ipairs(content.items) do
      local names = orders_of[item] or {}
      orders_of[item] = names
      if names[#names] ~= order then
        names[#names + 1] = order
      end
    end
  end
  for item in pairs(stock) do
    local names = orders_of[item] or {}
    -- The same choice at whatever site it is made: the last by name.
    for place = #names, 1, -1 do
      if stock[item] >= 0 then
        break
      end
      local content = orders[names[place]]
      if content then
        count(has, content, -1)
        count(lost, content, 1)
        cancel(names[place], item .. " was sold out")
      end
    end
  end
  for item, needed in pairs(needs) do
    for _, order in ipairs(orders_of[item] or {}) do
      local content = orders[order]
      local gone = content and lost[content.customer]
      if gone and (gone[needed] or 0) > 0 and (has[content.customer][needed] or 0) == 0 then
        cancel(order, item .. " is of no use without " .. needed)
      end
    end
  end
  write("stock", { type = "hash", value = stock })
  if not (has_cancelled or has_joined) then
    return
  end
  -- As it was: a text that changes beside a removal on another branch would come back.
  local kept = {}
  for order in pairs(orders) do
    kept[order] = texts[order]
  end
  write("orders", { type = "hash", value = kept })
  write("apologies", { type = "hash", value = apologies })
end
