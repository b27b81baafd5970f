-- Makes the stored state of a bucket from when, tokens and parts. The short form is for fewer than 2^32 - 1 tokens.
if tokens < 2 ^ 32 - 1 then
  state = pack('<dd', when, tokens * 2 ^ 20 + parts)
else
  state = pack('<ddd', -when, tokens, parts)
end
