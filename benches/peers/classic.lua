-- The token bucket as most write it: two fields of a hash, read, changed, written, and given a life.
--
-- KEYS[1]  the key
-- ARGV     capacity, tokens a second, cost
-- Answers whether it passed, and what remains.

local capacity, rate_per_s, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local time = redis.call('TIME')
local now_s = tonumber(time[1]) + tonumber(time[2]) / 1000000

local state = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = tonumber(state[1]) or capacity
local at_s = tonumber(state[2]) or now_s
tokens = math.min(capacity, tokens + math.max(0, now_s - at_s) * rate_per_s)

local allowed = 0
if tokens >= cost then
  tokens, allowed = tokens - cost, 1
end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', string.format('%.6f', now_s))
redis.call('PEXPIRE', KEYS[1], math.ceil(capacity / rate_per_s * 1000))
return {allowed, math.floor(tokens)}
