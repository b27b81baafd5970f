if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
