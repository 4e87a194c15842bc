import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type AgentProcess, startAgent } from '../../support/host/agent-process.ts'
import { rulesOf, SAMPLE_RULES } from '../../support/host/iptables-rules.ts'
import { makeNetworkNamespace, type NetworkNamespace } from '../../support/host/network-namespace.ts'

describe.each([
  { family: 'IPv4', isIpv6: false, address: '10.0.0.2' },
  { family: 'IPv6', isIpv6: true, address: 'fd00::2' },
])('GetIPTables and SetIPTables for $family', ({ isIpv6, address }) => {
  let namespace: NetworkNamespace
  let started: AgentProcess
  beforeEach(async () => {
    namespace = await makeNetworkNamespace()
    started = await startAgent({ network: namespace })
    await set(SAMPLE_RULES)
  })
  afterEach(async () => {
    await started.stop()
    await namespace.close()
  })

  it('return the rules that were set, and accept what they returned', async () => {
    const saved = await get()
    expect(rulesOf(saved)).toEqual(rulesOf(SAMPLE_RULES))
    await set(saved)
    expect(rulesOf(await get())).toEqual(rulesOf(saved))
  })

  it('replace only the tables that are named', async () => {
    await set('*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p udp -j RETURN\nCOMMIT\n')
    const rules = rulesOf(await get())
    expect(rules).toContain('-A PREROUTING -p udp -j RETURN')
    expect(rules).toContain('-A INPUT -p tcp -m tcp --dport 22 -m comment --comment "two words" -j DROP')
    expect(rules.join('\n')).not.toContain('MASQUERADE')
  })

  it('keep every byte of a comment, also where a set of rules is refused after it', async () => {
    const bytes = Buffer.from(
      '*filter\n-A INPUT -m comment --comment "gr\xfc\xdfe" -j DROP\nCOMMIT\n',
      'latin1',
    )
    await started.agent.setIPTables({ isIpv6, data: bytes })
    const shown = async () => (await started.agent.getIPTables({ isIpv6 })).data
    expect(Buffer.from(await shown()).toString('latin1')).toContain('gr\xfc\xdfe')
    const late = '*filter\nCOMMIT\n*raw\n-A PREROUTING -j DNAT --to-destination :1\nCOMMIT\n'
    await expect(set(late)).rejects.toMatchObject({ code: 'INTERNAL' })
    expect(Buffer.from(await shown()).toString('latin1')).toContain('gr\xfc\xdfe')
  })

  it.each([
    ['cannot be read', '*filter\n-A INPUT -p tcp --dport nope -j DROP\nCOMMIT\n', /line/],
    ['name no table', '*bogus\nCOMMIT\n', /bogus/],
    ['end too soon', '*filter\n-A INPUT -j DROP\n', /COMMIT/],
  ])('refuse rules that %s, and keep the old ones', async (_what, rules, words) => {
    const before = rulesOf(await get())
    await expect(set(rules)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringMatching(words),
    })
    expect(rulesOf(await get())).toEqual(before)
  })

  it('keep the old rules of all tables when the kernel refuses a late one', async () => {
    const before = rulesOf(await get())
    const raw = '*raw\n-A PREROUTING -j RETURN\nCOMMIT\n'
    const nat = '*nat\n-A PREROUTING -p udp -j RETURN\nCOMMIT\n'
    // DNAT is valid only in the nat table.
    const filter = `*filter\n-A INPUT -j DNAT --to-destination ${address}\nCOMMIT\n`
    await expect(set(raw + nat + filter)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringMatching(/RULE_APPEND failed/),
    })
    expect(rulesOf(await get()).filter((line) => !line.includes('ACCEPT'))).toEqual(
      before.filter((line) => !line.includes('ACCEPT')),
    )
    expect(rulesOf(await get()).join('\n')).not.toContain('RETURN')
  })

  async function get(): Promise<string> {
    return Buffer.from((await started.agent.getIPTables({ isIpv6 })).data).toString()
  }

  async function set(rules: string): Promise<void> {
    await started.agent.setIPTables({ isIpv6, data: Buffer.from(rules) })
  }
})
