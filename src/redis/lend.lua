-- Takes a slice out of a window.
--
--   KEYS[1]   the rule's
--   ARGV[1]   doubles: now or 0, algorithm, max, debt, three as in decide.lua, need, slice, hosts
--   ARGV[2]   the field
--
-- Answers doubles: 0 if the windows passed are not those of the clock, else 1; the clock; tokens lent; end of the window; what
-- is left.
local key, field = KEYS[1], ARGV[2]
local now, algorithm, max, debt, a, b, c, need, slice, hosts = unpack('<dddddddddd', packed)
now = clock(now)

local finish, length = now + a, a
if algorithm == CALENDAR then finish, length = calendar_at(now, a, b, c) end
if not finish then return pack('<ddddd', 0, now, 0, 0, 0) end

local value = pcall('HGET', key, field)
if type(value) == 'table' then return refuse(key, field, value.err) end
local count, moved
finish, length, count, moved = window_at(value, now, finish, length)
if not finish then return refuse(key, field, 'this is no state of a limit') end
count = count + debt
if count > COUNT_MAX then count = COUNT_MAX end

-- Half of what is left is shared out, so that slices shrink and the last tokens are found by whoever needs them.
local lent, room = 0, max - count
if need <= room and room > 0 then
  local part = (room - room % (2 * hosts)) / (2 * hosts)
  lent = math.max(need, math.min(slice, part))
end
if lent > 0 or debt > 0 or moved then
  call('HSET', key, field, pack('<ddd', finish, length, count + lent))
  keep(key, finish - now, 0)
end
return pack('<ddddd', 1, now, lent, finish, room > lent and room - lent or 0)
