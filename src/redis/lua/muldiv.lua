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
