"""Mergeable types on a branch keyspace: each is its plain command, and the keyspace merges.

Counters merge by the rule of their type. What a conflict means to the others HANDLER says, for keys that begin with `lww:`,
`mv:` and `or:`.

    KEYSPACE CREATE types MODEL branch MERGE handler HANDLER "$(python branching.py)"
"""

import json
import uuid

HANDLER = """
function resolve(key, conflict)
  if key:sub(1, 3) == "mv:" then          -- all values that no branch has replaced
    local function values(text)
      local all = {}
      for _, value in ipairs(text and json.decode(text) or {}) do all[value] = true end
      return all
    end
    local fork, kept, list = values(conflict.fork), {}, {}
    for _, branch in ipairs(conflict.branches) do
      for value in pairs(values(branch)) do
        local stays = true
        if fork[value] then
          for _, other in ipairs(conflict.branches) do stays = stays and values(other)[value] end
        end
        kept[value] = kept[value] or stays
      end
    end
    for value, stays in pairs(kept) do if stays then list[#list + 1] = value end end
    return json.encode(list)
  elseif key:sub(1, 4) == "lww:" then     -- the latest by its own time
    local last = conflict.fork
    for _, branch in ipairs(conflict.branches) do
      if branch and (not last or json.decode(branch)[1] > json.decode(last)[1]) then last = branch end
    end
    return last
  elseif key:sub(1, 3) == "or:" then      -- a member stays that a branch added anew, or that no branch removed
    local function tags(value) return value and value.value or {} end
    local fork, all = tags(conflict.fork), {}
    for _, branch in ipairs(conflict.branches) do
      for member, tag in pairs(tags(branch)) do
        local stays = true
        if fork[member] == tag then
          for _, other in ipairs(conflict.branches) do stays = stays and tags(other)[member] end
        end
        if stays and (not all[member] or tag > all[member]) then all[member] = tag end
      end
    end
    return {type = "hash", value = all}
  end
end
"""


class Type:
    """A value of a type at a site. `client` has chosen the keyspace and decodes replies."""

    def __init__(self, client, name: str):
        self.redis, self.name = client, name


class OpCounter(Type):
    def add(self, amount: int) -> None:
        self.redis.incrby(self.name, amount)

    def value(self) -> int:
        return int(self.redis.get(self.name) or 0)


class PNCounter(OpCounter):
    def subtract(self, amount: int) -> None:
        self.redis.decrby(self.name, amount)


class LWWRegister(Type):
    def set(self, value: str, time: float) -> None:
        self.redis.set("lww:" + self.name, json.dumps([time, value]))

    def value(self) -> str | None:
        text = self.redis.get("lww:" + self.name)
        return text and json.loads(text)[1]


class MVRegister(Type):
    def set(self, value: str) -> None:
        self.redis.set("mv:" + self.name, json.dumps([value]))

    def values(self) -> set:
        return set(json.loads(self.redis.get("mv:" + self.name) or "[]"))


class ORSet(Type):
    def add(self, member: str) -> None:
        self.redis.hset("or:" + self.name, member, uuid.uuid4().hex)

    def remove(self, member: str) -> None:
        self.redis.hdel("or:" + self.name, member)

    def members(self) -> set:
        return set(self.redis.hkeys("or:" + self.name))


if __name__ == "__main__":
    print(HANDLER)
