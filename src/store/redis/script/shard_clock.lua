-- Production prelude: the time is this shard's, read once; a call whose deadline has passed does nothing;
-- the hash expires after its longest-lived state, and dead states of it are swept by the calls that write to it.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local deadline = tonumber(ARGV[1])
if now > deadline then
  return { now, '' }
end

-- Makes the hash live for at least ttl_ms more: for a quarter longer, so that few calls have to.
local function keep(hash, ttl_ms)
  if redis.call('PTTL', hash) < ttl_ms then
    redis.call('PEXPIRE', hash, string.format('%.0f', ttl_ms * 1.25))
  end
end

-- Looks at two random states for each new one, and at four in one of 16 calls, and removes those that have been the
-- same as none for a second: a key that is asked often is not removed and made anew. So while keys come and go at most
-- about half of the hash is dead, and what a burst of keys left goes by and by.
local function sweep(hash, created, ends_at)
  local samples = 2 * created + (now % 16 == 0 and 4 or 0)
  if samples == 0 then
    return
  end
  local sample = redis.call('HRANDFIELD', hash, -samples, 'WITHVALUES')
  local dead = {}
  for i = 1, #sample, 2 do
    if ends_at(struct.unpack('<BBdddd', sample[i + 1])) <= now - 1000000 then
      dead[#dead + 1] = sample[i]
    end
  end
  if #dead > 0 then
    redis.call('HDEL', hash, unpack(dead))
  end
end
