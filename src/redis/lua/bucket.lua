-- A bucket at `now`: of value, max, debt, cost, a (the time in which max comes back) and b (its capacity) it makes when, used,
-- moved and room. Or `why` it is damaged.
when, used, moved = now, 0, false
if value then
  used = -1
  if #value == 16 then when, used = unpack('<dd', value) end
  if not (when >= 0 and when < 2 ^ 52 and used >= 0 and used <= 2 ^ 52 - 2 ^ 20) then
    why = 'this is no state of a bucket'
    when, used = now, 0
  end
  if when <= now then
    local elapsed, per, most = now - when, a, used
    --@ come_back.lua
    when, used = now, back < used and used - back or 0
  elseif when - now > a or used == 0 then
    when, moved = now, used > 0
  end
end
if debt > 0 then
  used, moved = used + debt * 2 ^ 20, true
  if used > 2 ^ 52 - 2 ^ 20 then used = 2 ^ 52 - 2 ^ 20 end
end
room = used + cost * 2 ^ 20 <= b * 2 ^ 20
