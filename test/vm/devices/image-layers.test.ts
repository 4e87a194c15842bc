import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Storage } from '../../../src/gen/agent.ts'
import type { DeepPartial } from '../../../src/gen/oci.ts'
import type { VmSpec } from '../../../src/host/spec/spec.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { busyboxRoot } from '../../support/containers/busybox-root.ts'
import { bind, createContainerRequest } from '../../support/containers/container-requests.ts'
import { type Pod, RemoteProcess } from '../../support/containers/pod.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { CRUN, cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { bootPod, GUEST_PROC } from '../../support/vm/guest-pod.ts'

const SLOTS = { base: 9, top: 10, upper: 11, table: 12 } as const

const MIB = 1024 * 1024

describe.skipIf(cannotBoot() !== undefined)('images of erofs layers in a guest', () => {
  let folder: string
  let guest: TestGuest
  let pod: Pod
  let verity: { readonly rootHash: string; readonly hashOffset: number }

  beforeAll(async () => {
    folder = temporaryFolder()
    const base = layer('base', (root) => {
      busyboxRoot(root)
      writeFileSync(join(root, 'root/from'), 'base')
    })
    const top = layer('top', (root) => {
      mkdirSync(join(root, 'root/etc'), { recursive: true })
      writeFileSync(join(root, 'root/from'), 'top')
      writeFileSync(join(root, 'root/etc/only-top'), 'here')
    })
    const upper = join(folder, 'upper.img')
    writeFileSync(upper, '')
    truncateSync(upper, 16 * MIB)
    verity = withHashTree(base)
    const table = partitioned([top, base])
    ;({ guest, pod } = await bootPod({ append: [CRUN], extra: disks({ base, top, upper, table }) }))
  })

  afterAll(async () => {
    await guest?.stop()
  })

  it('lays a new layer over two, and removes all of it with the container', async () => {
    const storages = [
      upper({ driverOptions: ['create_filesystem'], options: ['X-kata.mkdir.path={{ mount 0 }}/kept:0700'] }),
      lower({ source: '0a' }),
      lower({ source: '09' }),
    ]
    const script =
      'cat /from /etc/only-top; echo -n written > /etc/new; echo -n over > /from; cat /etc/new /from'
    await expect(output('first', script, storages)).resolves.toBe('tophere' + 'writtenover')
    await expect(leftInGuest()).resolves.toBe('')
  })

  it('finds again what was written to the layer', async () => {
    const storages = [upper({}), lower({ source: '0a' }), lower({ source: '09' })]
    await expect(output('second', 'cat /etc/new /from', storages)).resolves.toBe('writtenover')
  })

  it('reads layers from partitions, one of them checked by dm-verity, and keeps them read-only', async () => {
    const storages = [partition(1), partition(2, verityOptions(verity.rootHash))]
    const meanwhile = async () =>
      expect(await leftInGuest()).toMatch(/layers-\w+\/1\n[\s\S]*dm-0\n\.layers-\w+\n$/)
    const script = 'cat /from; touch /x 2>/dev/null || echo -n " read-only"'
    await expect(output('third', script, storages, meanwhile)).resolves.toBe('top read-only')
    await expect(leftInGuest()).resolves.toBe('')
  })

  it('refuses a layer with another root hash, and leaves nothing', async () => {
    const other = `${verity.rootHash.startsWith('0') ? '1' : '0'}${verity.rootHash.slice(1)}`
    const creating = output('fourth', 'true', [partition(1), partition(2, verityOptions(other))])
    await expect(creating).rejects.toThrow(
      /^layer 0c, partition 2: mount .*: its data does not match the root hash$/,
    )
    await expect(leftInGuest()).resolves.toBe('')
  })

  it('lists the partitions when the requested one does not exist', async () => {
    await expect(output('fifth', 'true', [partition(7)])).rejects.toThrow(
      /waiting for uevent of partition 7 of \/dev\/vd.*sysfs shows vd.1, vd.2/,
    )
    await expect(leftInGuest()).resolves.toBe('')
  })

  function leftInGuest(): Promise<string> {
    const script =
      'grep -o "layers-[^ ]*" /guest/proc/1/mounts; ls /guest/sys/block | grep dm-; ls -a /kata | grep layers; true'
    const mounts = [GUEST_PROC, bind('/sys', '/guest/sys'), bind('/run/kata-containers', '/kata')]
    return pod.output('looking', script, { mounts })
  }

  async function output(
    id: string,
    script: string,
    layers: readonly DeepPartial<Storage>[],
    meanwhile: () => Promise<void> = async () => {},
  ): Promise<string> {
    const mountPoint = `/run/kata-containers/${id}/rootfs`
    const storages = layers.map((each) => ({ ...each, mountPoint }))
    await pod.agent.createContainer(
      createContainerRequest(id, mountPoint, ['sh', '-c', script], { storages }),
    )
    await meanwhile()
    await pod.agent.startContainer({ containerId: id })
    const init = new RemoteProcess(pod.agent, id)
    const read = await init.readAll()
    await init.wait()
    await pod.remove(id)
    return read.toString()
  }

  function verityOptions(rootHash: string): string[] {
    return [
      'X-kata.dmverity-enabled=true',
      `X-kata.dmverity.roothash=${rootHash}`,
      `X-kata.dmverity.hashoffset=${verity.hashOffset}`,
    ]
  }

  /** `fill` creates the tree in `root` of the folder that it receives. */
  function layer(name: string, fill: (folder: string) => void): string {
    const [tree, image] = [join(folder, name), join(folder, `${name}.erofs`)]
    mkdirSync(tree)
    fill(tree)
    execFileSync('mkfs.erofs', ['--all-root', image, join(tree, 'root')], { stdio: 'ignore' })
    return image
  }

  function partitioned(images: readonly string[]): string {
    const disk = join(folder, 'table.img')
    writeFileSync(disk, '')
    truncateSync(disk, 2 * MIB + images.reduce((sum, image) => sum + alignedSize(image), 0))
    const table = images.map((image) => `size=${alignedSize(image) / 512}\n`).join('')
    execFileSync('sfdisk', ['--quiet', disk], { input: `label: gpt\n${table}` })
    let at = MIB
    for (const image of images) {
      execFileSync('dd', [`if=${image}`, `of=${disk}`, 'bs=1M', `seek=${at / MIB}`, 'conv=notrunc'], {
        stdio: 'ignore',
      })
      at += alignedSize(image)
    }
    return disk
  }
})

const LOWER = ['X-kata.multi-layer=true', 'X-kata.overlay-lower']

function lower({ source, options = [] }: { readonly source: string; readonly options?: readonly string[] }) {
  return { driver: 'blk', source, fstype: 'erofs', options: ['ro', ...LOWER, ...options] }
}

function partition(number: number, options: readonly string[] = []) {
  const where = ['X-kata.gpt-partitioned=true', `X-kata.partition-number=${number}`]
  return lower({ source: '0c', options: [...where, ...options] })
}

function upper({ options = [], ...changes }: DeepPartial<Storage>): DeepPartial<Storage> {
  const marks = ['rw', 'X-kata.multi-layer=true', 'X-kata.overlay-upper']
  return {
    driver: 'erofs.multi-layer',
    source: '0b',
    fstype: 'ext4',
    options: [...marks, ...options],
    ...changes,
  }
}

/** Appends the hash tree for dm-verity, as hosts do. */
function withHashTree(image: string) {
  const hashOffset = Math.ceil(statSync(image).size / 4096) * 4096
  truncateSync(image, hashOffset)
  const args = ['format', '--hash-offset', String(hashOffset), '--data-blocks', String(hashOffset / 4096)]
  const said = execFileSync('veritysetup', [...args, image, image], { encoding: 'utf8' })
  const rootHash = /^Root hash:\s+([0-9a-f]+)$/m.exec(said)?.[1]
  if (rootHash === undefined) throw new Error(`veritysetup gave no root hash: ${said}`)
  return { rootHash, hashOffset }
}

function alignedSize(file: string): number {
  return Math.ceil(readFileSync(file).length / MIB) * MIB
}

function disks(paths: Readonly<Record<keyof typeof SLOTS, string>>): Omit<VmSpec, 'board'> {
  const names = ['base', 'top', 'upper', 'table'] as const
  return {
    devices: Object.fromEntries(
      names.map((name) => [
        specKey(name),
        { kind: 'disk', slot: SLOTS[name], serial: name, backend: specKey(`${name}-file`) } as const,
      ]),
    ),
    backends: Object.fromEntries(
      names.map((name) => [
        specKey(`${name}-file`),
        { kind: 'file', path: paths[name], access: name === 'upper' ? 'read-write' : 'read-only' } as const,
      ]),
    ),
  }
}
