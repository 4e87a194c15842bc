import { describe, expect, it } from 'vitest'
import type { VMMetadata } from '../../../src/gen/vm.ts'
import { readVmMetadata } from '../../../src/handlers/network/vm-metadata/read-vm-metadata.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import {
  BARE_ITEM,
  firmwareTree,
  type Item,
  OPT_ITEM,
  ROOT,
} from '../../support/handlers/network/firmware-tree.ts'

/** Written by hand from the protocol, without the agent's own encoder. */
const ONE_FAMILY = Buffer.from('0a03766d3112160a140a0831302e302e302e32120831302e302e302e31', 'hex')
const BOTH_FAMILIES = Buffer.from(
  '0a03766d31122a0a140a0831302e302e302e32120831302e302e302e3112120a07666430303a3a321207666430303a3a31',
  'hex',
)
const V4 = { ip: '10.0.0.2', peerIp: '10.0.0.1' }
const V6 = { ip: 'fd00::2', peerIp: 'fd00::1' }

async function read(...items: readonly Item[]) {
  const { lines, log } = recordingLog()
  return { found: await readVmMetadata(await firmwareTree(items), log), lines }
}

describe('readVmMetadata', () => {
  it.each<[string, Buffer, VMMetadata['networkConfig']]>([
    ['29 bytes with one family', ONE_FAMILY, { v4: V4, v6: undefined }],
    ['49 bytes with both families', BOTH_FAMILIES, { v4: V4, v6: V6 }],
  ])('reads the recorded %s', async (_, bytes, networkConfig) => {
    const { found, lines } = await read({ name: OPT_ITEM, bytes })
    expect(found).toMatchObject({ item: OPT_ITEM, metadata: { name: 'vm1', networkConfig } })
    expect(lines).toEqual([])
  })

  it('ignores unknown fields of a newer host', async () => {
    const newer = Buffer.concat([
      Buffer.from('fa0103616263', 'hex'),
      ONE_FAMILY,
      Buffer.from('a80107', 'hex'),
    ])
    const { found } = await read({ name: OPT_ITEM, bytes: newer })
    expect(found?.metadata).toEqual({ name: 'vm1', networkConfig: { v4: V4, v6: undefined } })
  })

  it('reads the name without opt/ when there is no other', async () => {
    const { found } = await read({ name: BARE_ITEM, bytes: ONE_FAMILY })
    expect(found?.item).toBe(BARE_ITEM)
  })

  it('prefers the name with opt/, and warns when the two differ', async () => {
    const { found, lines } = await read(
      { name: BARE_ITEM, bytes: ONE_FAMILY },
      { name: OPT_ITEM, bytes: BOTH_FAMILIES },
    )
    expect(found?.item).toBe(OPT_ITEM)
    expect(lines).toEqual([
      {
        level: 'warn',
        message: 'VM metadata given twice with different content',
        fields: { used: OPT_ITEM, ignored: BARE_ITEM },
      },
    ])
  })

  it('logs no warning when the two are the same', async () => {
    const { lines } = await read(
      { name: BARE_ITEM, bytes: ONE_FAMILY },
      { name: OPT_ITEM, bytes: ONE_FAMILY },
    )
    expect(lines).toEqual([])
  })

  it.each([
    ['cut off', ONE_FAMILY.subarray(0, 20), undefined, 'premature EOF'],
    ['shorter than its size', ONE_FAMILY, 30, 'read 29 bytes, want 30'],
    ['too large', ONE_FAMILY, 1_000_000, '1000000 bytes, want at most 65536'],
  ])('treats metadata that is %s as absent, with a warning', async (_, bytes, size, error) => {
    const item = { name: OPT_ITEM, bytes, ...(size === undefined ? {} : { size }) }
    const { found, lines } = await read(item, { name: BARE_ITEM, bytes: BOTH_FAMILIES })
    expect(found?.item).toBe(BARE_ITEM)
    expect(lines).toEqual([
      {
        level: 'warn',
        message: 'VM metadata ignored',
        fields: { item: OPT_ITEM, error: expect.stringContaining(error) },
      },
    ])
  })

  it('distinguishes a missing driver, a missing device and missing metadata', async () => {
    const reasonOf = async (tree: Parameters<typeof readVmMetadata>[0]) => {
      const { lines, log } = recordingLog()
      expect(await readVmMetadata(tree, log)).toBeUndefined()
      expect(lines).toMatchObject([{ level: 'info', message: 'no VM metadata' }])
      return lines[0]?.fields.reason
    }
    expect(await reasonOf({ files: new FakeOs().files, root: ROOT })).toContain('no qemu_fw_cfg driver')
    expect(await reasonOf(await firmwareTree(undefined))).toContain('no fw_cfg device')
    expect(await reasonOf(await firmwareTree([]))).toBe('the host gave none')
  })
})
