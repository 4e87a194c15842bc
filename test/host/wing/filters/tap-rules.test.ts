import { execFileSync } from 'node:child_process'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { rulesOf, tableOf, withoutTable } from '../../../../src/host/instance/filters/tap-rules.ts'
import type { NetworkFilter } from '../../../../src/host/spec/spec.ts'
import { makeNetworkNamespace, type NetworkNamespace } from '../../../support/host/network-namespace.ts'
import { agentFramesOf, agentOfAnother, framesOf, OWN } from './frames.ts'

/**
 * Writes the frames of stdin, one a line, into the tap of its first argument. Before that it gives nft its third argument,
 * and makes the tap a port of the bridge of its fourth. It prints the numbers of the frames that come out of the interface
 * of its second.
 */
const SENDER = `
import fcntl, os, socket, struct, subprocess, sys
tap = os.open('/dev/net/tun', os.O_RDWR)
fcntl.ioctl(tap, 0x400454ca, struct.pack('16sH', sys.argv[1].encode(), 0x1002))
rules, bridge = sys.argv[3], sys.argv[4]
subprocess.run(['nft', '-j', rules], check=True)
subprocess.run(['ip', 'link', 'set', sys.argv[1], 'master', bridge, 'up'], check=True)
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
out.bind((sys.argv[2], 0))
out.settimeout(3)
frames = [bytes.fromhex(line) for line in sys.stdin]
for number, frame in enumerate(frames):
    os.write(tap, frame + b'MARK%04d' % number)
while True:
    data = out.recv(2048)
    at = data.rfind(b'MARK')
    if at < 0: continue
    number = int(data[at + 4:at + 8])
    print(number, flush=True)
    if number == len(frames) - 1: break
`

const TAP = 'tap0'
const table = tableOf('/state/instances/n-1', 'net')
const ADDRESSES = [OWN.ipv4, OWN.ipv6]
const NAMES = { mac: 'no-mac-spoofing', ip: 'no-ip-spoofing', arp: 'no-arp-spoofing' } as const

describe('the filters of a tap', () => {
  let namespace: NetworkNamespace

  beforeAll(async () => {
    namespace = await makeNetworkNamespace(
      'br0 up type bridge mcast_snooping 0',
      'br1 up type bridge mcast_snooping 0',
      'out0 up master br0 type veth peer name seen0',
      'out1 up master br1 type veth peer name seen1',
    )
    for (const link of ['seen0', 'seen1']) namespace.ip(`link set ${link} up`)
    // The bridge would check and cut packets of IP by itself.
    for (const family of ['ip', 'ip6', 'arp'])
      namespace.run('sh', '-c', `echo 0 > /proc/sys/net/bridge/bridge-nf-call-${family}tables`)
    nft('add table netdev others; add table bridge others')
  })
  afterAll(() => namespace.close())

  const nft = (...words: readonly string[]) => namespace.run('nft', ...words)
  const tables = () => nft('list', 'tables').trim().split('\n')

  /** The names of the frames that reach a port of the bridge. */
  function reached(
    filters: readonly NetworkFilter[],
    bridge = '0',
    frames: readonly (readonly [name: string, frame: Buffer, ...rest: unknown[]])[] = framesOf(),
  ): readonly string[] {
    // The last one always passes, so that all have been seen then.
    const lines = [...frames, ...frames.slice(0, 1)].map(([, frame]) => frame.toString('hex'))
    const card = { mac: OWN.mac, filters, addresses: ADDRESSES }
    const rules = filters.length === 0 ? withoutTable(table) : rulesOf({ table, interfaceName: TAP, card })
    const words = [
      '/usr/bin/python3',
      '-c',
      SENDER,
      TAP,
      `seen${bridge}`,
      JSON.stringify(rules),
      `br${bridge}`,
    ]
    const [program = '', ...argv] = [...namespace.enter, ...words]
    const output = execFileSync(program, argv, { encoding: 'utf8', input: lines.join('\n') })
    return output.split('\n').flatMap((number) => frames[Number(number || NaN)]?.[0] ?? [])
  }

  it('are none at first: all reaches others', () => {
    expect(reached([])).toEqual(framesOf().map(([name]) => name))
  })

  it.each([
    { kinds: ['mac'] },
    { kinds: ['ip'] },
    { kinds: ['arp'] },
    { kinds: ['mac', 'ip', 'arp'] },
  ] as const)('keep back what they name: $kinds', ({ kinds }) => {
    const filters = kinds.map((kind) => NAMES[kind])
    const wanted = framesOf().filter(
      ([, , stops]) => !stops.some((stop) => kinds.some((kind) => kind === stop)),
    )
    for (const bridge of ['0', '1']) expect(reached(filters, bridge)).toEqual(wanted.map(([name]) => name))
    expect(tables()).toEqual(['table netdev others', 'table bridge others', `table netdev ${table}`])
  })

  it.each([{ others: [] }, { others: ['ip'] }, { others: ['mac', 'ip', 'arp'] }] as const)(
    'let the agent alone answer, and begin nothing, also beside $others',
    ({ others }) => {
      const frames = agentFramesOf()
      const wanted = frames.filter(([, , passes]) => passes)
      const filters = [...others.map((kind) => NAMES[kind]), 'agent-only'] as const
      expect(reached(filters, '0', frames)).toEqual(wanted.map(([name]) => name))
    },
  )

  it('keep back what the agent says as another', () => {
    const frames = [...agentFramesOf().slice(0, 1), agentOfAnother()]
    expect(reached(['agent-only'], '0', frames)).toHaveLength(2)
    expect(reached(['no-ip-spoofing', 'agent-only'], '0', frames)).toHaveLength(1)
  })

  it('take themselves away, also twice, and leave the tables of others', () => {
    const remove = () => nft('-j', JSON.stringify(withoutTable(table)))
    expect([remove(), remove()]).toEqual(['', ''])
    expect(tables()).toEqual(['table netdev others', 'table bridge others'])
  })
})
