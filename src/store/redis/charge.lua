-- Charges the steps of one call to the states of one partition, which stand in one hash.
--
-- KEYS[1]  the hash of the partition
-- ARGV[1]  see the prelude
-- ARGV[2]  the plan: rules, then steps (see script.rs, which writes it)
-- ARGV[3]  and on: the distinct fields (state id, key) that the steps touch
--
-- Answers the time and the states as they were before. The caller takes the same steps on those states and
-- tells what was decided, so that nothing is formatted here. Nothing is written where nothing was charged.
--
-- All numbers are whole and below 2^53, where floor(a / b) and ceil(a / b) are exact. The formulas are those of
-- limit/token_bucket.rs and limit/sliding_window.rs.
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local pack, unpack_bytes = struct.pack, struct.unpack

local STATE = '<BBdddd'
local TOKEN_BUCKET, SLIDING_WINDOW = 1, 2
local CHECK, REFUND, RESET, FORCE, TAKE_UP_TO = 0, 2, 3, 4, 5
local LINK_LAST = 2
local CLOCK_STEP_US_MAX = 10000000

local hash, plan = KEYS[1], ARGV[2]
local before = redis.call('HMGET', hash, unpack(ARGV, 3))

-- State of each field, rolled to now. Of a bucket: at, debt. Of a window: index, current, previous, elapsed.
local first, second, third, elapsed = {}, {}, {}, {}
local rule_of, dirty = {}, {}

local function roll_bucket(quantum_us, per_quantum, at, debt)
  local t = floor(now / quantum_us)
  if t >= at + ceil(debt / per_quantum) then
    return t, 0
  elseif t >= at then
    return t, debt - (t - at) * per_quantum
  elseif at * quantum_us - now > CLOCK_STEP_US_MAX then
    return t, debt
  end
  return at, debt
end

local function roll_window(quantum_us, length, index, current, previous)
  local t = floor(now / quantum_us)
  local i = floor(t / length)
  local e = t - i * length
  if i < index and index * length * quantum_us - now <= CLOCK_STEP_US_MAX then
    return index, current, previous, 0
  elseif i <= index then
    return i, current, previous, e
  elseif i == index + 1 then
    return i, 0, current, e
  end
  return i, 0, 0, e
end

-- What a state of another rule counts as used, rounded up.
local function used(kind, quantum_us, a, b, c, d)
  if kind == TOKEN_BUCKET then
    local _, debt = roll_bucket(quantum_us, b, c, d)
    return ceil(debt / a)
  end
  local _, current, previous, e = roll_window(quantum_us, a, b, c, d)
  return current + ceil(previous * (a - e) / a)
end

local function expires_at(state)
  local kind, exponent, a, b, c, d = unpack_bytes(STATE, state)
  if kind == TOKEN_BUCKET then
    return (c + ceil(d / b)) * 10 ^ exponent
  end
  local windows = c > 0 and 2 or d > 0 and 1 or 0
  return (b + windows) * a * 10 ^ exponent
end

-- A rule: kind, exponent, quantum_us, and for a bucket p, r, capacity, debt_max; for a window length, limit,
-- count_max.
local bucket = {
  start = function(rule, field)
    first[field], second[field] = floor(now / rule.quantum_us), 0
  end,
  read = function(rule, field, kind, exponent, a, b, c, d)
    if kind ~= TOKEN_BUCKET or exponent ~= rule.exponent or a ~= rule.a or b ~= rule.b then
      return false
    end
    first[field], second[field] = roll_bucket(rule.quantum_us, b, c, d)
    return true
  end,
  room = function(rule, field)
    return floor(max(0, rule.c * rule.a - second[field]) / rule.a)
  end,
  charge = function(rule, field, cost)
    local debt = second[field]
    if cost <= floor(max(0, rule.d - debt) / rule.a) then
      second[field] = debt + cost * rule.a
    else
      second[field] = rule.d
    end
  end,
  refund = function(rule, field, cost)
    second[field] = max(0, second[field] - cost * rule.a)
  end,
  is_empty = function(field)
    return second[field] == 0
  end,
  write = function(rule, field)
    return pack(STATE, TOKEN_BUCKET, rule.exponent, rule.a, rule.b, first[field], second[field])
  end,
}

local window = {
  start = function(rule, field)
    first[field], second[field], third[field], elapsed[field] = roll_window(rule.quantum_us, rule.a, 0, 0, 0)
  end,
  read = function(rule, field, kind, exponent, a, b, c, d)
    if kind ~= SLIDING_WINDOW or exponent ~= rule.exponent or a ~= rule.a then
      return false
    end
    first[field], second[field], third[field], elapsed[field] = roll_window(rule.quantum_us, a, b, c, d)
    return true
  end,
  room = function(rule, field)
    local previous = ceil(third[field] * (rule.a - elapsed[field]) / rule.a)
    return max(0, rule.b - second[field] - previous)
  end,
  charge = function(rule, field, cost)
    second[field] = min(rule.c, second[field] + cost)
  end,
  refund = function(_, field, cost)
    local from_current = min(second[field], cost)
    second[field] = second[field] - from_current
    third[field] = max(0, third[field] - (cost - from_current))
  end,
  is_empty = function(field)
    return second[field] == 0 and third[field] == 0
  end,
  write = function(rule, field)
    return pack(STATE, SLIDING_WINDOW, rule.exponent, rule.a, first[field], second[field], third[field])
  end,
}

local algorithms = { [TOKEN_BUCKET] = bucket, [SLIDING_WINDOW] = window }

-- Rolls a field to now when a step first touches it. Where it then ends sooner than as stored, by another rule or
-- a clock that was set back, it is written though nothing may be charged: see View::settle in limit/decide.rs.
local function touch(rule, field)
  if rule_of[field] then
    return
  end
  rule_of[field] = rule
  local state = before[field]
  if not state then
    rule.algorithm.start(rule, field)
    return
  end
  local kind, exponent, a, b, c, d = unpack_bytes(STATE, state)
  if rule.algorithm.read(rule, field, kind, exponent, a, b, c, d) then
    dirty[field] = first[field] < (kind == TOKEN_BUCKET and c or b)
  else
    rule.algorithm.start(rule, field)
    rule.algorithm.charge(rule, field, used(kind, 10 ^ exponent, a, b, c, d))
    local ends = expires_at(state)
    dirty[field] = ends > now and expires_at(rule.algorithm.write(rule, field)) < ends
  end
end

local rules = {}
local steps, position

local function read_rules()
  local count
  count, steps, position = unpack_bytes('<HH', plan)
  for i = 1, count do
    local kind, exponent, a, b, c, d
    kind, exponent, a, b, c, d, position = unpack_bytes(STATE, plan, position)
    rules[i] = {
      algorithm = algorithms[kind], exponent = exponent, quantum_us = 10 ^ exponent, a = a, b = b, c = c, d = d,
    }
  end
end

-- The most that may pass under all rules of a step.
local function room(rule_first, rule_count, field_first)
  local least = math.huge
  for i = 0, rule_count - 1 do
    local rule = rules[rule_first + i]
    least = min(least, rule.algorithm.room(rule, field_first + i))
  end
  return least
end

local function change(method, rule_first, rule_count, field_first, cost)
  for i = 0, rule_count - 1 do
    local rule, field = rules[rule_first + i], field_first + i
    rule.algorithm[method](rule, field, cost)
    if rule.algorithm.is_empty(field) then
      -- As never used: also a stored time that was ahead of the clock is forgotten.
      rule.algorithm.start(rule, field)
    end
    dirty[field] = true
  end
end

-- Takes one operation `times` times, one after another, on one key. Answers false where a check was denied.
local function step(operation, times, cost, rule_first, rule_count, field_first)
  if operation == CHECK then
    local passes = min(times, floor(room(rule_first, rule_count, field_first) / cost))
    if passes > 0 then
      change('charge', rule_first, rule_count, field_first, passes * cost)
    end
    return passes == times
  elseif operation == TAKE_UP_TO then
    local granted = min(times * cost, room(rule_first, rule_count, field_first))
    if granted > 0 then
      change('charge', rule_first, rule_count, field_first, granted)
    end
  elseif operation == FORCE then
    change('charge', rule_first, rule_count, field_first, times * cost)
  elseif operation == REFUND then
    change('refund', rule_first, rule_count, field_first, times * cost)
  elseif operation == RESET then
    change('start', rule_first, rule_count, field_first)
  end
  return true
end

-- Linked steps: what they changed is taken back where one of them was denied.
local linked, linked_ok = {}, true

local function remember(rule_count, field_first)
  for field = field_first, field_first + rule_count - 1 do
    linked[#linked + 1] = { field, first[field], second[field], third[field], dirty[field] or false }
  end
end

local function settle()
  if not linked_ok then
    for i = #linked, 1, -1 do
      local field, a, b, c, was_dirty = unpack(linked[i])
      first[field], second[field], third[field], dirty[field] = a, b, c, was_dirty
    end
  end
  linked, linked_ok = {}, true
end

local function take_steps()
  for _ = 1, steps do
    local operation, rule_count, link, rule_first, field_first, keys, times, cost
    operation, rule_count, link, rule_first, field_first, keys, times, cost, position =
      unpack_bytes('<BBBHHHId', plan, position)
    for field = field_first, field_first + (keys - 1) * rule_count, rule_count do
      for i = 0, rule_count - 1 do
        touch(rules[rule_first + i], field + i)
      end
      if link > 0 then
        remember(rule_count, field)
      end
      local passed = step(operation, times, cost, rule_first, rule_count, field)
      if link > 0 then
        linked_ok = linked_ok and passed
      end
    end
    if link == LINK_LAST then
      settle()
    end
  end
end

-- Writes what was changed: one HSET, one HDEL.
local function write_back()
  local set, deleted, created, latest = {}, {}, 0, now
  for field, changed in pairs(dirty) do
    if changed then
      local rule, name = rule_of[field], ARGV[2 + field]
      if not rule.algorithm.is_empty(field) then
        local state = rule.algorithm.write(rule, field)
        set[#set + 1] = name
        set[#set + 1] = state
        latest = max(latest, expires_at(state))
        created = created + (before[field] and 0 or 1)
      elseif before[field] then
        deleted[#deleted + 1] = name
      end
    end
  end
  if #deleted > 0 then
    redis.call('HDEL', hash, unpack(deleted))
  end
  if #set > 0 then
    redis.call('HSET', hash, unpack(set))
    keep(hash, ceil((latest - now) / 1000) + 1000)
  end
  if created > 0 then
    sweep(hash, created, expires_at)
  end
end

read_rules()
take_steps()
write_back()

for field = 1, #before do
  before[field] = before[field] or '\0'
end
return { now, table.concat(before) }
