-- Records which charges of a plan are holds: in a sorted set beside each key, by the time when they end.
do
  local spot, own, cell, id = begins, held, fields
  id, own = unpack('<d', packed, own)
  for rule = 1, rules do
    local key, took, life, words, count, cells = KEYS[keys + rule], fits, need + spare, {}, 0
    if plan then took, life = plan[rule][3], plan[rule][4] + plan[rule][5] end
    cells, spot = unpack('<d', packed, spot)
    spot = spot + 8
    for _ = 1, cells do
      local algorithm, max, debt, cost, per, ttl, amount, kind, nth, member
      local off = 0
      algorithm, max, debt, cost, per, spot = unpack('<ddddd', packed, spot)
      algorithm = algorithm % 8 -- whether it has overdraft does not matter here
      ttl, amount, kind, nth, own = unpack('<dddd', packed, own)
      spot, cell = spot + 16, cell + 1
      if took and kind > 0 then
        local field, origin = ARGV[cell], algorithm == 0 and now or algorithm == 4 and 0 or unpack('<d', charged[cell - fields])
        local lasts = ttl + (algorithm == 0 and per < 86400000000 and per or algorithm == 0 and 86400000000 or 0)
        if lasts > life then life = lasts end
        --@ name_hold.lua
        words[count + 1], words[count + 2] = now + ttl, member
        count = count + 2
      end
    end
    if count > 0 then
      local key, need, spare = key .. ':h', life, 0
      call('ZADD', key, spread(words))
      --@ keep.lua
    end
  end
end
