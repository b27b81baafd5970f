-- Forgets subjects, and that what they were charged before can still be given back.
--
--   KEYS      of rules and subjects
--   ARGV[1]   seconds for which receipts are good
--
-- Answers how many there were, an integer.
local found, time = 0, redis.call('TIME')
for i = 1, #KEYS do
  found = found + redis.call('DEL', KEYS[i])
  redis.call('DEL', KEYS[i] .. ':h')
  redis.call('SET', KEYS[i] .. ':freed', string.format('%d%06d', time[1], time[2]), 'EX', ARGV[1])
end
return found
