-- A sliding window at `now`: of value, max, debt, least (what has to fit) and a (its length) it makes start, previous, count,
-- moved, begun and room. Or `why` it is damaged.
local offset = 0
start, previous, count, moved, begun = now, 0, 0, false, true
if value then
  previous = -1
  if #value == 24 then start, previous, count = unpack('<ddd', value) end
  if not (start >= 0 and start < 2 ^ 52 and previous >= 0 and previous < 2 ^ 32 and count >= 0 and count < 2 ^ 32) then
    why = 'this is not a state of a sliding window'
    start, previous, count = now, 0, 0
  end
  offset, begun = now - start, false
  if offset < 0 then
    if offset < -a and previous + count > 0 then start, moved, begun = now, true, true end
    offset = 0
  elseif offset >= a then
    previous, count = offset < 2 * a and count or 0, 0
    start, offset, begun = start + a, offset - a, true
  end
  if previous + count == 0 then start, offset, begun = now, 0, true end
end
if debt > 0 then
  count, moved = count + debt, true
  if count >= 2 ^ 32 then count = 2 ^ 32 - 1 end
end
--@ muldiv.lua
local in_view, rest = muldiv(a - offset, previous, a)
if rest > 0 then in_view = in_view + 1 end
room = in_view + count + least <= max
