import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { rulesOf, SAMPLE_RULES } from '../support/host/iptables-rules.ts'
import { bootTestGuest, cannotBoot, type TestGuest } from '../support/vm/boot-guest.ts'

describe.skipIf(cannotBoot() !== undefined)('packet filters in the guest', () => {
  let guest: TestGuest
  beforeAll(async () => {
    guest = await bootTestGuest()
  })
  afterAll(() => guest?.stop())

  it.each([
    ['IPv4', false],
    ['IPv6', true],
  ])('are set and given back for %s, with the modules that the rules need', async (_family, isIpv6) => {
    await guest.agent.setIPTables({ isIpv6, data: Buffer.from(SAMPLE_RULES) })
    const { data } = await guest.agent.getIPTables({ isIpv6 })
    expect(rulesOf(Buffer.from(data).toString())).toEqual(rulesOf(SAMPLE_RULES))
    await guest.agent.setIPTables({ isIpv6, data })
    const again = await guest.agent.getIPTables({ isIpv6 })
    expect(rulesOf(Buffer.from(again.data).toString())).toEqual(rulesOf(SAMPLE_RULES))
  })

  it('stay as they are when the tool refuses the new ones', async () => {
    const before = await guest.agent.getIPTables({})
    const rules = Buffer.from(
      '*nat\n-A PREROUTING -j RETURN\nCOMMIT\n*filter\n-A INPUT -j DNAT --to-destination 10.0.0.1\nCOMMIT\n',
    )
    await expect(guest.agent.setIPTables({ data: rules })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringContaining('RULE_APPEND failed'),
    })
    const after = await guest.agent.getIPTables({})
    expect(rulesOf(Buffer.from(after.data).toString())).toEqual(rulesOf(Buffer.from(before.data).toString()))
  })
})
