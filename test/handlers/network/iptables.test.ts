import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { type GuestNetwork, guestNetwork } from '../../support/handlers/network/guest-network.ts'

const OLD = '*filter\n:INPUT ACCEPT [5:300]\nCOMMIT\n'
const NEW = Buffer.from('*filter\n:INPUT DROP [0:0]\nCOMMIT\n*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n')

describe('getIptables', () => {
  let guest: GuestNetwork
  beforeEach(async () => {
    guest = await guestNetwork()
    await guest.os.files.put('/usr/sbin/iptables-save', '')
  })

  it.each([
    [false, '/usr/sbin/iptables-save'],
    [true, '/sbin/ip6tables-save'],
  ])('returns the output of the tool (IPv6 %s), whatever folder the tool is in', async (isIpv6, path) => {
    guest.os.tools.script((argv) => (argv.join(' ') === path ? { stdout: OLD } : undefined))
    expect(Buffer.from(await guest.handlers.getIptables(isIpv6, neverAborted)).toString()).toBe(OLD)
    expect(guest.os.tools.calls[0]?.options.timeoutMs).toBe(5000)
  })

  it('keeps the bytes of comments that are not valid UTF-8', async () => {
    guest.os.tools.script((_argv, { encoding }) =>
      encoding === 'latin1' ? { stdout: '# \xfc\n' } : undefined,
    )
    expect(await guest.handlers.getIptables(false, neverAborted)).toEqual(
      Buffer.from([0x23, 0x20, 0xfc, 0x0a]),
    )
  })

  it('passes on the tool’s error output', async () => {
    guest.os.tools.script(() => ({
      exitCode: 3,
      stderr: 'iptables-save: Could not fetch rule set generation id\n',
    }))
    await expect(guest.handlers.getIptables(false, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'iptables-save: exit code 3: iptables-save: Could not fetch rule set generation id',
    })
  })

  it('fails instead of returning truncated rules', async () => {
    guest.os.tools.script((_argv, { maxOutputBytes = 0 }) => ({ stdout: 'x'.repeat(maxOutputBytes + 1) }))
    await expect(guest.handlers.getIptables(false, neverAborted)).rejects.toMatchObject({ code: 'INTERNAL' })
  })
})

describe('setIptables', () => {
  let guest: GuestNetwork
  let restores: { readonly words: string; readonly stdin: string }[]
  beforeEach(async () => {
    guest = await guestNetwork()
    restores = []
    guest.os.tools.script(([program = '', ...words], { stdin = '' }) => {
      if (program.endsWith('-save')) return { stdout: OLD }
      restores.push({ words: words.join(' '), stdin: Buffer.from(stdin).toString() })
      return { stdout: 'done\n' }
    })
  })

  it('tests the rules, then applies them, and returns the output of the tool', async () => {
    const answer = await guest.handlers.setIptables(false, NEW, neverAborted)
    expect(Buffer.from(answer).toString()).toBe('done\n')
    expect(restores).toEqual([
      { words: '--wait 5 --test', stdin: NEW.toString() },
      { words: '--wait 5', stdin: NEW.toString() },
    ])
    expect(guest.record.settings()).toEqual([
      { kind: 'iptables', subject: 'ipv4', value: `${NEW.length} bytes`, source: 'rpc' },
    ])
  })

  it('changes nothing when the rules are invalid', async () => {
    guest.os.tools.script((argv) =>
      argv.includes('--test') ? { exitCode: 2, stderr: "Can't initialize: line 2 failed\n" } : undefined,
    )
    await expect(guest.handlers.setIptables(true, NEW, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: "ip6tables-restore: exit code 2: Can't initialize: line 2 failed",
    })
    expect(restores).toEqual([])
    expect(guest.record.settings()).toEqual([])
  })

  it('restores old rules with counters, and empties new tables, when the kernel refuses a rule', async () => {
    guest.os.tools.script((argv) =>
      argv.slice(1).join(' ') === '--wait 5'
        ? { exitCode: 4, stderr: 'line 5: RULE_APPEND failed\n' }
        : undefined,
    )
    await expect(guest.handlers.setIptables(false, NEW, neverAborted)).rejects.toThrow('RULE_APPEND failed')
    expect(restores.at(-1)).toEqual({ words: '--wait 5 --counters', stdin: `${OLD}*nat\nCOMMIT\n` })
    expect(guest.record.settings()).toEqual([])
  })

  it('does not overwrite the rules of another call when it restores its own', async () => {
    const refused = Promise.withResolvers<void>()
    const runs: string[] = []
    guest.os.tools.script(([program = '', ...words], { stdin = '' }) => {
      if (program.endsWith('-save')) return { stdout: OLD }
      if (words.includes('--test')) return { stdout: '' }
      const rules = Buffer.from(stdin).toString()
      runs.push(rules)
      if (rules !== 'bad') return { stdout: '' }
      return refused.promise.then(() => ({ exitCode: 1, stderr: 'no' }))
    })
    const bad = guest.handlers.setIptables(false, Buffer.from('bad'), neverAborted)
    const good = guest.handlers.setIptables(false, NEW, neverAborted)
    refused.resolve()
    await expect(bad).rejects.toThrow('no')
    await good
    expect(runs.at(-1)).toBe(NEW.toString())
  })
})
