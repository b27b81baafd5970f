-- The state of a bucket that is stored as value: when; tokens and parts (1/2^20 token), which are used then. Or `why` it is
-- damaged. A long state has -when, which tells it from a short one; see bucket_state.lua.
if #value == 16 then
  when, tokens = unpack('<dd', value)
  if tokens > 2 ^ 52 - 2 ^ 20 then tokens = -1 end
  parts = tokens % 2 ^ 20
  tokens = (tokens - parts) / 2 ^ 20
elseif #value == 24 then
  when, tokens, parts = unpack('<ddd', value)
  when = -when
else
  tokens = -1
end
if not (when >= 0 and when < 2 ^ 52 and tokens >= 0 and tokens < 2 ^ 53 and parts >= 0 and parts < 2 ^ 20) then
  why = 'this is not a state of a bucket'
  when, tokens, parts = now, 0, 0
end
