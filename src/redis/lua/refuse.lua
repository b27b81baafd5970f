-- `why` the field of a key cannot be read.
do
  local name = (key .. ' ' .. field):gsub('%c', '?')
  return redis.error_reply('BADSTATE ' .. name .. ': ' .. why .. '; delete the key, or give weir a prefix of its own')
end
