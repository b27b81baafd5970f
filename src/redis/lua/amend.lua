-- Makes amend(): charges become other amounts. Nothing else needs these functions, so the scripts make them only where they do.
local function amended(count, from, to, most)
  count = count > from and count - from or 0
  return to <= most - count and count + to or most
end

-- A window that is over takes nothing. What belongs to one that the state has left, but that is not over, is charged to the
-- current one. `off`: the end may be off by so much.
local function amend_window(algorithm, value, from, to, finish, length, off)
  local its_finish, its_length, count = 0, 0, 0
  if value then its_finish, its_length, count = unpack('<ddd', value) end
  if value and math.abs(its_finish - finish) <= math.min(off, its_length / 4) then
    if its_finish <= now then return end
    count = amended(count, from, to, 2 ^ 53 - 1)
  else
    if to == 0 or finish <= now then return end
    local left = its_finish - now
    if left <= 0 or left > 2 * its_length or count == 0 then
      if off > 0 then return end
      its_finish, its_length = algorithm == 1 and now + length or finish, length
      if left <= 0 then count = 0 end
    end
    count = amended(count, 0, to, 2 ^ 53 - 1)
  end
  return pack('<ddd', its_finish, its_length, count), its_finish - now
end

local function amend_slide(value, from, to, start, per)
  if start + 2 * per <= now or not value and to == 0 then return end
  local its_start, previous, count = start, 0, 0
  if value then its_start, previous, count = unpack('<ddd', value) end
  if its_start == start then
    count = amended(count, from, to, 2 ^ 32 - 1)
  elseif its_start == start + per then
    previous = amended(previous, from, to, 2 ^ 32 - 1)
  elseif to == 0 then
    return
  else
    local offset = now - its_start
    if offset >= per then its_start, previous, count = its_start + per, offset < 2 * per and count or 0, 0 end
    if offset < -per or previous + count == 0 then its_start = now end
    count = amended(count, 0, to, 2 ^ 32 - 1)
  end
  return pack('<ddd', its_start, previous, count), its_start + 2 * per - now
end

-- The part of a cost that has not come back by itself since it was charged, rounded up; `rest` tells that it was.
local function left_of(cost, taken, max, per)
  local elapsed, tokens, parts, rest = now > taken and now - taken or 0, cost, 0
  --@ come_back.lua
  return tokens, parts, rest
end

-- Nobody knows how much has come back since a time that is ahead of the clock: nothing is given back then. More counts from `taken`
-- on, but not from before the last charge: time that has passed repays each token once, however many charges wait for it.
local function amend_bucket(value, from, to, taken, max, per)
  if max == 0 or from == to or to < from and (taken > now + 1000000 or not value) then return end
  local when, tokens, parts, why, state = math.min(taken, now), 0, 0
  if value then
    --@ read_bucket.lua
    if why then return end
  end
  if to > from then
    local since, rest = math.min(math.max(taken, when), now)
    if since > when then
      local elapsed = since - when
      when = since
      --@ come_back.lua
    end
    if to - from > 2 ^ 53 - 2 - tokens then tokens, parts = 2 ^ 53 - 1, 0 else tokens = tokens + (to - from) end
    local then_tokens, then_parts, elapsed = tokens, parts, now - when
    --@ come_back.lua
    if elapsed <= 0 or tokens + parts == 0 then tokens, parts = then_tokens, then_parts else when = now end
  else
    local less, less_parts, rest = left_of(from, taken, max, per)
    local more, more_parts = left_of(to, taken, max, per)
    if more + more_parts == 0 and less + less_parts > 0 and rest > 0 then less_parts = less_parts - 1 end
    if less == more and less_parts == more_parts then return end
    tokens, parts = tokens + (more - less), parts + more_parts - less_parts
    if parts < 0 then tokens, parts = tokens - 1, parts + 2 ^ 20 end
    if parts >= 2 ^ 20 then tokens, parts = tokens + 1, parts - 2 ^ 20 end
    if tokens < 0 then tokens, parts = 0, 0 end
  end
  --@ bucket_state.lua
  return state, math.max(0, when - now + (tokens + 1) / max * per)
end

-- Returns the state after `to` has taken the place of `from`, and for how long that state matters. Nothing: nothing changes, or
-- there is nothing that could.
local function amend(algorithm, value, from, to, origin, max, per, off)
  if algorithm == 0 then
    return amend_bucket(value, from, to, origin, max, per)
  elseif algorithm == 4 then
    if value and #value == 8 then return pack('<d', amended(unpack('<d', value), from, 0, 2 ^ 53 - 1)), 0 end
  elseif not value or #value == 24 then
    if algorithm == 2 then return amend_slide(value, from, to, origin, per) end
    return amend_window(algorithm, value, from, to, origin, per, off)
  end
end
