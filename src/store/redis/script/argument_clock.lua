-- Prelude for tests that own the clock: the time is an argument, and nothing expires by Redis's own clock.
local now = tonumber(ARGV[1])
local function keep() end
local function sweep() end
