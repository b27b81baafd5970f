-- Sees to it that `key` stays for `need` microseconds. It is told `spare` and a second more, so that it need not be told
-- each time.
do
  local least = need / 1000
  if call('PTTL', key) < least then
    local most = least + spare / 1000 + 1001
    if not (most < 2 ^ 42) then most = 2 ^ 42 end
    call('PEXPIRE', key, most - most % 1)
  end
end
