-- `why` the field of a key cannot be read, as an error.
do
  --@ reason.lua
  return redis.error_reply(text)
end
