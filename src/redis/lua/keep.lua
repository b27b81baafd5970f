-- Sees to it that `key` stays for `need` microseconds. It is told `spare` and a second more, so that it need not be told
-- each time. Never less than it was told before: another version of the rules may have other limits there. Redis 7 can be
-- asked for just that, which is one command for a new key.
do
  local least = need / 1000
  local most = least + spare / 1000 + 1001
  if not (most < 2 ^ 42) then most = 2 ^ 42 end
  most = most - most % 1
  if spare == 0 and redis.REDIS_VERSION_NUM then
    if call('PEXPIRE', key, most, 'NX') == 0 then call('PEXPIRE', key, most, 'GT') end
  elseif call('PTTL', key) < least then
    call('PEXPIRE', key, most)
  end
end
