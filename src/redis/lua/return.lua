-- Gives back what is left of a slice, to the window that it was taken from.
--
--   KEYS[1]   the rule's
--   ARGV[1]   doubles: end of the window, tokens
--   ARGV[2]   the field
--
-- Answers how many tokens the window got back, an integer.
--@ names.lua
local key, field = KEYS[1], ARGV[2]
local finish, tokens = unpack('<dd', packed)
local value = pcall('HGET', key, field)
if not value then return 0 end
if type(value) == 'table' or #value ~= 24 then
  local why = value.err or 'this is not a state of a window'
  --@ refuse.lua
end
local its_finish, length, count = unpack('<ddd', value)
if its_finish ~= finish then return 0 end
if tokens > count then tokens = count end
call('HSET', key, field, pack('<ddd', finish, length, count - tokens))
return tokens
