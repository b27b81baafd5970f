-- A bucket at `now`. Input: value, max, debt, least (what has to fit), a (the time in which max comes back), b (its capacity).
-- Output: when; tokens and parts, which are used then; moved and room; or `why` it is damaged.
when, tokens, parts, moved = now, 0, 0, false
if value then
  --@ read_bucket.lua
  if when <= now then
    local elapsed, per, rest = now - when, a
    when = now
    --@ come_back.lua
  elseif when - now > a or tokens + parts == 0 then
    when, moved = now, tokens + parts > 0
  end
end
if debt > 0 then
  moved = true
  if debt <= 2 ^ 53 - 1 - tokens then tokens = tokens + debt else tokens, parts = 2 ^ 53 - 1, 0 end
end
room = tokens + (parts > 0 and 1 or 0) <= b - least
