-- The state of a bucket as it is stored, of when, tokens and parts. The short one ends below 2^32 - 1 tokens.
if tokens < 2 ^ 32 - 1 then
  state = pack('<dd', when, tokens * 2 ^ 20 + parts)
else
  state = pack('<ddd', -when, tokens, parts)
end
