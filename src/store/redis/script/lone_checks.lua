-- Charges the steps of one call to the states of one partition, which stand in one hash.
--
-- KEYS[1]  the hash of the partition
-- ARGV[1]  the deadline or the time: see prelude_*.lua, one of which stands before this script
-- ARGV[2]  the plan: rules, lone checks, other steps (see script/plan.rs, which writes it)
-- ARGV[3]  and on: the distinct fields (state id, key) that the plan names
--
-- Answers the time and the states as they were before. The caller takes the same steps on those states and
-- tells what was decided, so that nothing is formatted here. Nothing is written where nothing was charged.
--
-- All numbers are whole and below 2^53, where a division rounded down or up is exact: `x - x % 1` is x rounded
-- down and `x + -x % 1` is x rounded up, without a call. The formulas are those of limit/token_bucket.rs and
-- limit/sliding_window.rs.
--
-- Here stand the lone checks: of keys that nothing else in the call touches, by one limit. Most calls have no other
-- steps and end here; what a function costs to make would show in them. The others go on in steps.lua.
local unpack_bytes, pack = struct.unpack, struct.pack

local STATE = '<BBdddd'
local TOKEN_BUCKET, SLIDING_WINDOW = 1, 2

local hash, plan = KEYS[1], ARGV[2]
local before = redis.call('HMGET', hash, unpack(ARGV, 3))

-- What is to be written: a field, its state, and so on; how many of these fields are new; when the last of the states
-- ends.
local set, sets, created, latest = {}, 0, 0, now

-- A rule has the numbers a, b, c, d: of a bucket p, r, capacity, the largest debt; of a window length, limit, the
-- largest count. `t` is now in its quanta.
local rules = {}
local rule_count, lone_count, step_count, position = unpack_bytes('<HHH', plan)
for i = 1, rule_count do
  local kind, exponent, a, b, c, d
  kind, exponent, a, b, c, d, position = unpack_bytes(STATE, plan, position)
  local quantum_us = 10 ^ exponent
  local t = now / quantum_us
  t = t - t % 1
  rules[i] =
    { index = i, kind = kind, exponent = exponent, quantum_us = quantum_us, t = t, a = a, b = b, c = c, d = d }
end

-- Lone checks that are left to steps.lua: rule, field, times, cost.
local left = {}

-- Takes the same check on some keys. A check whose key has a state of another rule, or of a time to come, is left; so
-- is one that is denied in part.
local function check_buckets(rule, field_first, field_last, times, cost)
  local t, exponent, p, r = rule.t, rule.exponent, rule.a, rule.b
  local units, capacity = times * cost * p, rule.c * p
  local constants = pack('<BBdd', TOKEN_BUCKET, exponent, p, r)
  local debt_max, size = 0, sets
  for field = field_first, field_last do
    local state = before[field]
    local kind, e, a, b, at, debt = TOKEN_BUCKET, exponent, p, r, t, 0
    if state then
      kind, e, a, b, at, debt = unpack_bytes(STATE, state)
    end
    if at <= t and a == p and b == r and kind == TOKEN_BUCKET and e == exponent then
      debt = debt - (t - at) * r
      debt = (debt > 0 and debt or 0) + units
      if debt <= capacity then
        set[size + 1], set[size + 2] = ARGV[field + 2], pack('<c18dd', constants, t, debt)
        size = size + 2
        debt_max = debt > debt_max and debt or debt_max
        created = state and created or created + 1
      elseif times > 1 then
        left[#left + 1] = { rule.index, field, times, cost }
      end
    else
      left[#left + 1] = { rule.index, field, times, cost }
    end
  end
  local drain = debt_max / r
  return size, (t + drain + -drain % 1) * rule.quantum_us
end

-- As check_buckets.
local function check_windows(rule, field_first, field_last, times, cost)
  local exponent, length, limit, wanted = rule.exponent, rule.a, rule.b, times * cost
  local remaining = length - rule.t % length
  local present = (rule.t + remaining) / length - 1
  local constants, size = pack('<BBdd', SLIDING_WINDOW, exponent, length, present), sets
  for field = field_first, field_last do
    local state = before[field]
    local kind, e, a, index, current, previous = SLIDING_WINDOW, exponent, length, present, 0, 0
    if state then
      kind, e, a, index, current, previous = unpack_bytes(STATE, state)
    end
    if index <= present and a == length and kind == SLIDING_WINDOW and e == exponent then
      if index < present then
        current, previous = 0, index == present - 1 and current or 0
      end
      current = current + wanted
      local weighted = previous * remaining / length
      if current + weighted + -weighted % 1 <= limit then
        set[size + 1], set[size + 2] = ARGV[field + 2], pack('<c18dd', constants, current, previous)
        size = size + 2
        created = state and created or created + 1
      elseif times > 1 then
        left[#left + 1] = { rule.index, field, times, cost }
      end
    else
      left[#left + 1] = { rule.index, field, times, cost }
    end
  end
  return size, (present + 2) * length * rule.quantum_us
end

local function take_lone_checks()
  local index, field_first, keys, times, cost, ends_at
  index, field_first, keys, times, cost, position = unpack_bytes('<HHHId', plan, position)
  local rule = rules[index]
  local check = rule.kind == TOKEN_BUCKET and check_buckets or check_windows
  sets, ends_at = check(rule, field_first, field_first + keys - 1, times, cost)
  latest = ends_at > latest and ends_at or latest
end

-- The instant from which a state is the same as none.
local function ends_at(kind, exponent, a, b, c, d)
  if kind == TOKEN_BUCKET then
    local drain = d / b
    return (c + drain + -drain % 1) * 10 ^ exponent
  end
  return (b + (c > 0 and 2 or d > 0 and 1 or 0)) * a * 10 ^ exponent
end

-- Writes what is to be written, and answers.
local function finish()
  if sets > 0 then
    redis.call('HSET', hash, unpack(set))
    local ttl_ms = (latest - now) / 1000
    keep(hash, ttl_ms + -ttl_ms % 1 + 1000)
    sweep(hash, created, ends_at)
  end
  for field = 1, #before do
    before[field] = before[field] or '\0'
  end
  return { now, table.concat(before) }
end

for _ = 1, lone_count do
  take_lone_checks()
end
if step_count == 0 and #left == 0 then
  return finish()
end
