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
  rules[i] = { kind = kind, exponent = exponent, quantum_us = quantum_us, t = t - t % 1, a = a, b = b, c = c, d = d }
end

-- A function that takes a check on a stored state. It answers the state after the check and the instant at which that
-- ends, nothing where the check is denied, and false where the state is not simply one of this rule's past.
local function bucket_check(rule, cost)
  local t, quantum_us, exponent, p, r = rule.t, rule.quantum_us, rule.exponent, rule.a, rule.b
  local units, capacity = cost * p, rule.c * p
  return function(state)
    local debt = 0
    if state then
      local kind, e, a, b, at
      kind, e, a, b, at, debt = unpack_bytes(STATE, state)
      if kind ~= TOKEN_BUCKET or e ~= exponent or a ~= p or b ~= r or at > t then
        return false
      end
      debt = debt - (t - at) * r
      debt = debt > 0 and debt or 0
    end
    debt = debt + units
    if debt <= capacity then
      local drain = debt / r
      return pack(STATE, TOKEN_BUCKET, exponent, p, r, t, debt), (t + drain + -drain % 1) * quantum_us
    end
  end
end

-- As bucket_check.
local function window_check(rule, cost)
  local exponent, length, limit = rule.exponent, rule.a, rule.b
  local remaining = length - rule.t % length
  local present = (rule.t + remaining) / length - 1
  local ends_at = (present + 2) * length * rule.quantum_us
  return function(state)
    local current, previous = 0, 0
    if state then
      local kind, e, a, index
      kind, e, a, index, current, previous = unpack_bytes(STATE, state)
      if kind ~= SLIDING_WINDOW or e ~= exponent or a ~= length or index > present then
        return false
      elseif index < present then
        current, previous = 0, index == present - 1 and current or 0
      end
    end
    current = current + cost
    local weighted = previous * remaining / length
    if current + weighted + -weighted % 1 <= limit then
      return pack(STATE, SLIDING_WINDOW, exponent, length, present, current, previous), ends_at
    end
  end
end

-- Lone checks that are left to steps.lua: rule, field, times, cost.
local left = {}

local function take_lone_checks()
  local rule_index, field_first, keys, times, cost
  rule_index, field_first, keys, times, cost, position = unpack_bytes('<HHHId', plan, position)
  local rule = rules[rule_index]
  local check = (rule.kind == TOKEN_BUCKET and bucket_check or window_check)(rule, times * cost)
  for field = field_first, field_first + keys - 1 do
    local state = before[field]
    local after, ends_at = check(state)
    if after then
      set[sets + 1], set[sets + 2] = ARGV[field + 2], after
      sets = sets + 2
      latest = ends_at > latest and ends_at or latest
      created = created + (state and 0 or 1)
    elseif after == false or times > 1 then
      left[#left + 1] = { rule_index, field, times, cost }
    end
  end
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
