-- What the scripts share; the build puts it in front of each. README.md says why every number here is exact.
local unpack, pack, call, pcall, spread = struct.unpack, struct.pack, redis.call, redis.pcall, unpack
local KEYS, ARGV, packed = KEYS, ARGV, ARGV[1]
local BUCKET, FIXED, SLIDING, CALENDAR = 0, 1, 2, 3
local TOKEN = 2 ^ 20 -- parts of a token
local COUNT_MAX = 2 ^ 32 - 1

local function clock(now)
  if now > 0 then return now end
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

local function refuse(key, field, why)
  local name = (key .. (field and ' ' .. field or '')):gsub('%c', '?')
  return redis.error_reply('BADSTATE ' .. name .. ': ' .. why .. '; delete the key, or give weir a prefix of its own')
end

-- The current window of a calendar limit, as its end and length. Nothing: neither of the two that were passed.
local function calendar_at(now, start, finish, next_finish)
  if now < start or now >= next_finish then return end
  if now < finish then return finish, finish - start end
  return next_finish, next_finish - finish
end

-- A fixed or calendar window at `now`: end, length, count, whether it was moved to where the clock is now. finish and
-- length are those of the window that opens if there is none. Nothing: damaged.
local function window_at(value, now, finish, length)
  if not value then return finish, length, 0, false end
  if #value ~= 24 then return end
  local its_finish, its_length, count = unpack('<ddd', value)
  if not (its_finish >= 0 and its_finish < 2 ^ 53 and its_length >= 0 and its_length < 2 ^ 53 and count >= 0 and
      count <= COUNT_MAX) then
    return
  end
  local left = its_finish - now
  if left <= 0 or count == 0 then return finish, length, 0, false end
  if left <= 2 * its_length then return its_finish, its_length, count, false end
  return finish, length, count, true
end

-- a × b / c as quotient and rest, digit by digit of b where the product has more than 53 bits. a ≤ c.
local function muldiv(a, b, c)
  local product = a * b
  if product < 2 ^ 53 then
    local rest = product % c
    return (product - rest) / c, rest
  end
  local base = 2 ^ 52 / c
  base = base - base % 1
  local digit = b % base
  local quotient, rest = muldiv(a, (b - digit) / base, c)
  product = rest * base + a * digit
  rest = product % c
  return quotient * base + (product - rest) / c, rest
end

-- What comes back to a bucket in that time, in parts, rounded down; and whether it was. Once `enough` has come back for
-- sure, that is all that is said.
local function come_back(elapsed, max, per, enough)
  local rate = max * TOKEN
  if elapsed / per * rate > enough * 1.000001 + 1 then return enough, false end
  local begun = elapsed % per
  local parts, rest = muldiv(begun, rate, per)
  return (elapsed - begun) / per * rate + parts, rest > 0
end

-- Sees to it that the key stays for `need` microseconds. It gets `spare` and a second more, so that it need not be told
-- each time.
local function keep(key, need, spare)
  local least = need / 1000
  if call('PTTL', key) >= least then return end
  local most = least + spare / 1000 + 1001
  if not (most < 2 ^ 42) then most = 2 ^ 42 end
  call('PEXPIRE', key, most - most % 1)
end
