-- The steps that lone_checks.lua left: any operation, on keys under one or several limits, linked or not.
local CHECK, REFUND, RESET, FORCE, TAKE_UP_TO = 0, 2, 3, 4, 5
local LINK_LAST = 2
local CLOCK_STEP_US_MAX = 10000000

-- The fields that were touched, and the state of each, rolled to now. Of a bucket: at, debt. Of a window: index,
-- current, previous, elapsed.
local touched, rule_of, changed = {}, {}, {}
local first, second, third, elapsed = {}, {}, {}, {}

-- `t` is now in quanta.
local function roll_bucket(t, quantum_us, per_quantum, at, debt)
  if t >= at then
    local spare = debt / per_quantum
    if t - at >= spare + -spare % 1 then
      return t, 0
    end
    return t, debt - (t - at) * per_quantum
  elseif at * quantum_us - now > CLOCK_STEP_US_MAX then
    return t, debt
  end
  return at, debt
end

local function roll_window(t, quantum_us, length, index, current, previous)
  local e = t % length
  local i = (t - e) / length
  if i == index then
    return i, current, previous, e
  elseif i == index + 1 then
    return i, 0, current, e
  elseif i > index then
    return i, 0, 0, e
  elseif index * length * quantum_us - now <= CLOCK_STEP_US_MAX then
    return index, current, previous, 0
  end
  return i, current, previous, e
end

-- What a state that was written by another rule counts as used, rounded up.
local function used(kind, exponent, a, b, c, d)
  local quantum_us = 10 ^ exponent
  local t = now / quantum_us
  t = t - t % 1
  if kind == TOKEN_BUCKET then
    local _, debt = roll_bucket(t, quantum_us, b, c, d)
    local tokens = debt / a
    return tokens + -tokens % 1
  end
  local _, current, previous, e = roll_window(t, quantum_us, a, b, c, d)
  local weighted = previous * (a - e) / a
  return current + weighted + -weighted % 1
end

-- As never used.
local function start(rule, field)
  if rule.kind == TOKEN_BUCKET then
    first[field], second[field] = rule.t, 0
  else
    local e = rule.t % rule.a
    first[field], second[field], third[field], elapsed[field] = (rule.t - e) / rule.a, 0, 0, e
  end
end

local function charge(rule, field, cost)
  local charged = second[field]
  if rule.kind == TOKEN_BUCKET then
    local spare = (rule.d - charged) / rule.a
    second[field] = cost <= spare - spare % 1 and charged + cost * rule.a or rule.d
  else
    charged = charged + cost
    second[field] = charged < rule.c and charged or rule.c
  end
end

local function refund(rule, field, cost)
  local rest, previous
  if rule.kind == TOKEN_BUCKET then
    rest, previous = second[field] - cost * rule.a, 0
  else
    rest = second[field] - cost
    previous = rest < 0 and third[field] + rest or third[field]
    third[field] = previous > 0 and previous or 0
  end
  second[field] = rest > 0 and rest or 0
  if rest <= 0 and previous <= 0 then
    -- As never used: also a stored time that was ahead of the clock is forgotten.
    start(rule, field)
  end
end

-- The most that may pass.
local function room_of(rule, field)
  local room
  if rule.kind == TOKEN_BUCKET then
    room = (rule.c * rule.a - second[field]) / rule.a
    room = room - room % 1
  else
    local weighted = third[field] * (rule.a - elapsed[field]) / rule.a
    room = rule.b - second[field] - (weighted + -weighted % 1)
  end
  return room > 0 and room or 0
end

-- A field's state as it is to be stored.
local function stored(rule, field)
  if rule.kind == TOKEN_BUCKET then
    return rule.kind, rule.exponent, rule.a, rule.b, first[field], second[field]
  end
  return rule.kind, rule.exponent, rule.a, first[field], second[field], third[field]
end

-- Rolls a field to now when a step first touches it. Where it then ends sooner than as stored, by another rule or
-- a clock that was set back, it is written though nothing may be charged: see View::settle in limit/decide.rs.
local function touch(rule, field)
  touched[#touched + 1], rule_of[field] = field, rule
  local state = before[field]
  if not state then
    return start(rule, field)
  end
  local kind, exponent, a, b, c, d = unpack_bytes(STATE, state)
  local is_own = kind == rule.kind and exponent == rule.exponent and a == rule.a
  if is_own and kind ~= TOKEN_BUCKET then
    first[field], second[field], third[field], elapsed[field] = roll_window(rule.t, rule.quantum_us, a, b, c, d)
    changed[field] = first[field] < b
  elseif is_own and b == rule.b then
    first[field], second[field] = roll_bucket(rule.t, rule.quantum_us, b, c, d)
    changed[field] = first[field] < c
  else
    start(rule, field)
    charge(rule, field, used(kind, exponent, a, b, c, d))
    local ends = ends_at(kind, exponent, a, b, c, d)
    changed[field] = ends > now and ends_at(stored(rule, field)) < ends
  end
end

local function change(how, rule_first, rule_last, field, cost)
  for i = rule_first, rule_last do
    how(rules[i], field, cost)
    changed[field] = true
    field = field + 1
  end
end

local function touch_key(rule_first, rule_last, field)
  if not rule_of[field] then
    for i = rule_first, rule_last do
      touch(rules[i], field + i - rule_first)
    end
  end
end

-- Takes one operation `times` times, one after another, on the key whose first field is `field` and was touched.
-- Answers false where a check was denied.
local function take(operation, times, cost, rule_first, rule_last, field)
  if operation == CHECK or operation == TAKE_UP_TO then
    local room = room_of(rules[rule_first], field)
    for i = rule_first + 1, rule_last do
      local other = room_of(rules[i], field + i - rule_first)
      room = other < room and other or room
    end
    local wanted = times * cost
    local granted = wanted < room and wanted or room
    if operation == CHECK then
      granted = granted - granted % cost
    end
    if granted > 0 then
      change(charge, rule_first, rule_last, field, granted)
    end
    return granted == wanted or operation == TAKE_UP_TO
  elseif operation == FORCE then
    change(charge, rule_first, rule_last, field, times * cost)
  elseif operation == REFUND then
    change(refund, rule_first, rule_last, field, times * cost)
  elseif operation == RESET then
    change(start, rule_first, rule_last, field)
  end
  return true
end

-- Linked steps: what they changed is taken back where one of them was denied.
local linked, linked_ok = {}, true

local function take_linked(operation, times, cost, rule_first, rule_last, field)
  for i = field, field + rule_last - rule_first do
    linked[#linked + 1] = { i, first[i], second[i], third[i], changed[i] }
  end
  linked_ok = take(operation, times, cost, rule_first, rule_last, field) and linked_ok
end

local function settle()
  if not linked_ok then
    for i = #linked, 1, -1 do
      local saved = linked[i]
      local field = saved[1]
      first[field], second[field], third[field], changed[field] = saved[2], saved[3], saved[4], saved[5]
    end
  end
  linked, linked_ok = {}, true
end

local function take_step()
  local operation, rule_count, link, rule_first, field_first, keys, times, cost
  operation, rule_count, link, rule_first, field_first, keys, times, cost, position =
    unpack_bytes('<BBBHHHId', plan, position)
  local take_on_key, rule_last = link > 0 and take_linked or take, rule_first + rule_count - 1
  for field = field_first, field_first + (keys - 1) * rule_count, rule_count do
    touch_key(rule_first, rule_last, field)
    take_on_key(operation, times, cost, rule_first, rule_last, field)
  end
  if link == LINK_LAST then
    settle()
  end
end

-- Adds what was changed to what is to be written, and removes what is as never used.
local function write_back()
  local deleted = {}
  for i = 1, #touched do
    local field = touched[i]
    if changed[field] then
      local kind, exponent, a, b, c, d = stored(rule_of[field], field)
      if d > 0 or (kind ~= TOKEN_BUCKET and c > 0) then
        set[sets + 1], set[sets + 2] = ARGV[field + 2], pack(STATE, kind, exponent, a, b, c, d)
        sets = sets + 2
        local ends = ends_at(kind, exponent, a, b, c, d)
        latest = ends > latest and ends or latest
        created = created + (before[field] and 0 or 1)
      elseif before[field] then
        deleted[#deleted + 1] = ARGV[field + 2]
      end
    end
  end
  if #deleted > 0 then
    redis.call('HDEL', hash, unpack(deleted))
  end
end

for i = 1, #left do
  local rule, field, times, cost = unpack(left[i])
  touch_key(rule, rule, field)
  take(CHECK, times, cost, rule, rule, field)
end
for _ = 1, step_count do
  take_step()
end
write_back()
return finish()
