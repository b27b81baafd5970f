-- A fixed or calendar window at `now`: of value, algorithm, a, b, c and debt it makes finish, length, count; moved, if the
-- clock was wrong and the window is where the clock is now; begun, if it opens now. Or `why` it is damaged.
if algorithm == 1 then
  finish, length = now + a, a
elseif now < a or now >= c then
  return pack('<dd', 0, now)
elseif now < b then
  finish, length = b, b - a
else
  finish, length = c, c - b
end
count, moved, begun = 0, false, true
if value then
  local its_finish, its_length, its_count = 0, 0, -1
  if #value == 24 then its_finish, its_length, its_count = unpack('<ddd', value) end
  local left = its_finish - now
  if not (its_count >= 0 and its_count < 2 ^ 53 and its_length >= 0 and its_length < 2 ^ 53 and its_finish >= 0 and
      its_finish < 2 ^ 53) then
    why = 'this is not a state of a window'
  elseif left > 0 and its_count > 0 then
    count = its_count
    if left <= 2 * its_length then
      finish, length, begun = its_finish, its_length, false
    else
      moved = true
    end
  end
end
if debt > 0 then
  moved = true
  count = debt <= 2 ^ 53 - 1 - count and count + debt or 2 ^ 53 - 1
end
