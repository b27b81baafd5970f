-- Takes a slice out of a window.
--
--   KEYS[1]   the rule's
--   ARGV[1]   doubles: now or 0, algorithm, max, debt, three as in decide.lua, need, the part of it that lacks,
--             slice, hosts
--   ARGV[2]   the field
--
-- Answers doubles: 1; the clock; tokens lent; end of the window; what is left. Or 0 and the clock, as decide.lua does.
--@ names.lua
local key, field = KEYS[1], ARGV[2]
local now, algorithm, max, debt, a, b, c, need, lacks, slice, hosts = unpack('<ddddddddddd', packed)
--@ clock.lua

-- If there is too little, holds that are over may have some.
local finish, length, count, moved, begun, why, folded, held
repeat
  local value = pcall('HGET', key, field)
  if type(value) == 'table' then value, why = false, value.err end
  --@ window.lua
  if why or lacks <= max - count and max > count then break end
  --@ fold.lua
until not folded
if why then
  --@ refuse.lua
end

-- Half of what is left is shared out, so that slices shrink and the last tokens are found by whoever needs them. The missing part has
-- to fit. A host keeps its slice in 32 bits, together with the tokens that it already has.
local lent, room = 0, max - count
if lacks <= room and room > 0 then
  local part = (room - room % (2 * hosts)) / (2 * hosts)
  lent = math.min(math.max(math.min(need, room), math.min(slice, part)), 2 ^ 32 - 1 - (need - lacks))
end
if lent > 0 or moved then
  local need, spare = finish - now, 0
  call('HSET', key, field, pack('<ddd', finish, length, count + lent))
  --@ keep.lua
end
return pack('<ddddd', 1, now, lent, finish, room > lent and room - lent or 0)
