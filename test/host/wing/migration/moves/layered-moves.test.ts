import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../../src/base/abort.ts'
import {
  Backend,
  CloneInstanceRequest,
  Device,
  File_Access,
  type MigrateInstanceRequest,
  SnapshotRequest,
  State,
} from '../../../../../src/gen/microvm/instance/v1/instance.ts'
import { connectQmp } from '../../../../../src/host/qemu/qmp/connect.ts'
import { openSecrets } from '../../../../../src/host/secrets/secrets.ts'
import { BLOCK, decryptedByte, io } from '../../../../support/wing/layer-bytes.ts'
import { leftovers } from '../../../../support/wing/leftovers.ts'
import { MovingHosts } from '../../../../support/wing/moves/moving-hosts.ts'
import { image } from '../../../../support/wing/real-wing.ts'
import { ADMIN, file } from '../../../../support/wing/requests.ts'
import { luksImage } from '../../secrets/luks-image.ts'

const TIMEOUT_MS = 120_000
const UUID = '6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d11'
const SECRET = 'value-of-the-secret'
const [ROOT_BYTES, SAFE_BYTES] = [16n << 20n, 2n << 20n]

/** The machine has the disk `root`, and the encrypted one `safe`. */
describe('a machine whose disks have layers or are encrypted', { timeout: TIMEOUT_MS }, () => {
  let hosts: MovingHosts
  const at = (name: string) => join(hosts.disks, 'images', name)

  const encrypted = (path: string) =>
    Backend.fromPartial({
      file: { path, access: File_Access.READ_WRITE, encryption: { secret: UUID } },
    })

  /** Files of other content, into which the disks are copied. */
  function filesNamed(name: string): Readonly<Record<'root-file' | 'safe-file', Backend>> {
    writeFileSync(image(at(''), `${name}-root`, 16), Buffer.alloc(16 << 20, 0xee))
    return {
      'root-file': file(at(`${name}-root`)),
      'safe-file': encrypted(luksImage(at(`${name}-safe`), 2, SECRET)),
    }
  }

  async function setSecret(id: string): Promise<void> {
    const secrets = await openSecrets(join(hosts.host(id).machines.folder, 'secrets'))
    await secrets.set('', UUID, Buffer.from(SECRET))
  }

  /** Fills a block of each disk with a byte, as the guest would. QEMU has one client at a time. */
  async function write(key: string, block: number, byte: number): Promise<void> {
    await hosts.leave('a')
    const qmp = await connectQmp(join(hosts.host('a').machines.folderOf(key), 'qmp.sock'), neverAborted)
    for (const disk of ['root', 'safe'])
      for (const command of [`write -q -P ${byte} ${block * BLOCK} ${BLOCK}`, 'flush'])
        await io(qmp, disk, command)
    qmp.close()
    await hosts.open('a')
  }

  /** The first bytes of the first blocks of two files that nobody writes: a plain one and an encrypted one. */
  function bytesIn(root: string, safe: string) {
    const plain = readFileSync(at(root))
    const inClear = (block: number) => plain.readUInt8(block * BLOCK)
    const decrypted = (block: number) => decryptedByte('', at(safe), [], at('key'), block)
    return [
      [inClear(0), inClear(1), inClear(2)],
      [decrypted(0), decrypted(1), decrypted(2)],
    ] as const
  }

  async function move(from: string, to: string, key: string, change: Partial<MigrateInstanceRequest> = {}) {
    return (await hosts.move(from, to, { key, ...change })).at(-1)
  }

  /** The machine goes on at host a with its memory, and no other host has any of it. */
  async function expectUnmoved(key: string): Promise<void> {
    const [{ instances }, b] = [await hosts.open('a'), await hosts.open('b')]
    expect((await instances.get(key, ADMIN)).state).toBe(State.RUNNING)
    await hosts.host('a').machines.counted(key, 10)
    await hosts.host('a').machines.told(key)
    await expect.poll(() => b.instances.list(ADMIN), { timeout: 10_000 }).toEqual([])
    expect(existsSync(hosts.host('b').machines.folderOf(key))).toBe(false)
  }

  const layersAt = async (id: string, key: string) =>
    (await (await hosts.open(id)).instances.snapshots(key, ADMIN)).layers

  beforeAll(async () => {
    hosts = new MovingHosts(['a', 'b'])
    writeFileSync(at('key'), SECRET)
    await setSecret('a')
    await hosts.make('a', 'web', {
      devices: { safe: Device.fromPartial({ backend: 'safe-file', slot: 6, disk: { serial: 'safe' } }) },
      backends: { 'safe-file': encrypted(luksImage(at('safe'), 2, SECRET)) },
    })
    await write('web', 0, 1)
    const clone = CloneInstanceRequest.fromPartial({ key: 'web', count: 1, name: 'c', withoutAgent: true })
    await (await hosts.open('a')).instances.clone(clone, ADMIN, async () => {})
    await write('c', 1, 2)
    await hosts.open('b')
  })

  afterEach(() => {
    hosts.replaced = {}
    for (const id of ['a', 'b']) hosts.host(id).atStep = async () => {}
  })

  afterAll(async () => {
    await hosts.end()
    for (const id of ['a', 'b']) {
      const { folder } = hosts.host(id).machines
      expect(leftovers(folder)).toEqual([])
      // What is only there for clones.
      for (const name of ['saved/+own', 'keepers'])
        if (existsSync(join(folder, name))) expect(readdirSync(join(folder, name))).toEqual([])
    }
  })

  it('stays with layers that would be left behind, and with snapshots', async () => {
    const left = (backend: string) =>
      `backends.${backend}: its layers are files of this host, want another file at the target, or them merged`
    const both = [left('root-file'), left('safe-file')]
    expect((await move('a', 'b', 'c', { dryRun: true }))?.forecast?.obstacles).toEqual(both)
    await expect(move('a', 'b', 'c')).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `negotiate: ${left('root-file')}`,
    })
    const { 'root-file': root } = filesNamed('some')
    hosts.replaced = { 'root-file': root }
    await expect(move('a', 'b', 'c')).rejects.toThrow(left('safe-file'))
    await expectUnmoved('c')
    const { instances } = await hosts.open('a')
    await instances.snapshot(SnapshotRequest.fromPartial({ key: 'web', name: 'monday' }), ADMIN)
    const lost = 'snapshots: monday would be lost, want them removed (RemoveSnapshot)'
    await expect(move('a', 'b', 'web')).rejects.toMatchObject({ code: 'FAILED_PRECONDITION', message: lost })
    expect((await move('a', 'b', 'web', { dryRun: true }))?.forecast?.obstacles).toEqual([lost, ...both])
  })

  it('stays where the target has no secret, or would have the disk in clear', async () => {
    hosts.replaced = filesNamed('other')
    await expect(move('a', 'b', 'c')).rejects.toMatchObject({
      message: expect.stringContaining(`secret ${UUID}: not found`),
    })
    await expectUnmoved('c')
    await setSecret('b')
    hosts.replaced = { ...hosts.replaced, 'safe-file': file(image(at(''), 'clear', 2)) }
    await expect(move('a', 'b', 'c')).rejects.toThrow(
      'migration_target.replace_components: backends.safe-file.file.encryption: none, want a secret as before',
    )
    await expectUnmoved('c')
  })

  it('goes with all layers in one file, and encrypted again, there and back', async () => {
    hosts.replaced = filesNamed('there')
    hosts.host('b').atStep = async (_, step) => {
      if (step !== 'state') return
      const [pid] = hosts.host('b').machines.pidsOf('qemu', 'c')
      if (pid !== undefined) process.kill(pid, 'SIGKILL')
    }
    await expect(move('a', 'b', 'c')).rejects.toThrow()
    hosts.host('b').atStep = async () => {}
    await expectUnmoved('c')
    expect(await layersAt('a', 'c')).toHaveLength(2)

    const answers = await hosts.move('a', 'b', { key: 'c' })
    expect(answers.findLast(({ step }) => step === 'disks')?.totalBytes).toBe(ROOT_BYTES + SAFE_BYTES)
    await hosts.host('b').machines.counted('c', 10)
    await hosts.host('b').machines.told('c')
    expect(await layersAt('b', 'c')).toEqual([])
    // What is below the layers is below those of the machine that was cloned, too.
    expect(readdirSync(at('')).filter((name) => name.includes('.stale-'))).toEqual([])

    const { 'safe-file': other } = filesNamed('back')
    hosts.replaced = { 'safe-file': other }
    await move('b', 'a', 'c')
    const stale = readdirSync(at('')).filter((name) => name.includes('.stale-'))
    expect(stale).toEqual([expect.stringMatching(/^there-safe\.stale-\d+$/)])
    hosts.replaced = {}
    // Nothing is copied.
    await move('a', 'b', 'c')
    await hosts.host('b').machines.counted('c', 10)
    await hosts.host('b').machines.told('c')
    await (await hosts.open('b')).instances.remove('c', ADMIN)
    await expectUnmoved('web')
    // What was never written is no zero in an encrypted file.
    const [[, , root], [, , safe]] = bytesIn('root', 'safe')
    expect(bytesIn('there-root', 'back-safe')).toEqual([
      [1, 2, root],
      [1, 2, safe],
    ])
    expect(readFileSync(at('back-safe')).includes(Buffer.alloc(32, 2))).toBe(false)
  })
})
