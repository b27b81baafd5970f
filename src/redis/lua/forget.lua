-- Forgets subjects, and that what they were charged before can still be given back.
--
--   KEYS      of rules and subjects
--   ARGV[1]   seconds for which receipts are good
--
-- Answers how many there were, an integer. All or nothing: while a slot moves, one of the three keys of a subject may be on another
-- node. Forgetting once more is the same.
local found, time = 0, redis.call('TIME')
for i = 1, #KEYS do
  local key, field = KEYS[i], 'freed'
  local here = redis.pcall('EXISTS', key, key .. ':h', key .. ':freed')
  if type(here) == 'table' then
    local why = here.err
    --@ refuse.lua
  end
end
for i = 1, #KEYS do
  found = found + redis.call('DEL', KEYS[i])
  redis.call('DEL', KEYS[i] .. ':h')
  redis.call('SET', KEYS[i] .. ':freed', string.format('%d%06d', time[1], time[2]), 'EX', ARGV[1])
end
return found
