import { execFileSync } from 'node:child_process'
import {
  appendFileSync,
  copyFileSync,
  mkdirSync,
  readFileSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../../src/build/temporary-folder.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { type Partition, partitionTable } from '../../../src/image/formats/partition-table.ts'
import { bind } from '../../support/containers/container-requests.ts'
import { ctl } from '../../support/ctl/run-ctl.ts'
import { CRUN, cannotBoot } from '../../support/vm/boot-guest.ts'
import { dialGuest, guestSocketIn } from '../../support/vm/dial-guest.ts'
import { bootPod } from '../../support/vm/guest-pod.ts'

const MEBIBYTE = 2 ** 20
const SALT = 'aabbccdd'
const PORTS = ['agent.debug_console', 'agent.debug_console_vport=1026', 'agent.log_vport=1025']

describe.skipIf(cannotBoot() !== undefined)('extension images that a shim attaches', () => {
  let folder: string
  beforeAll(() => {
    folder = makeTemporaryFolder(tmpdir())
  })
  afterAll(() => removeTemporaryFolder(folder))

  it('are mounted at /run/kata-extensions, and their shell comes before that of the image', async () => {
    const plain = erofsOf('devkit', (tree) => addShell(join(tree, 'bin')))
    const { disk, parameters } = withHashes(erofsOf('checked'))
    const drive = (slot: number, name: string, path: string) => ({
      device: { kind: 'disk', slot, serial: `extension-${name}`, backend: specKey(name) } as const,
      backend: { kind: 'file', path, access: 'read-only' } as const,
    })
    const drives = { plain: drive(6, 'devkit', plain), checked: drive(7, 'checked', disk) }
    const { guest, pod } = await bootPod({
      extra: {
        devices: {
          [specKey('plain-disk')]: drives.plain.device,
          [specKey('checked-disk')]: drives.checked.device,
        },
        backends: { [specKey('devkit')]: drives.plain.backend, [specKey('checked')]: drives.checked.backend },
      },
      debugShell: true,
      vsock: 'vhost-user',
      append: [
        CRUN,
        ...PORTS,
        // Kata's shims write no "=" where their configuration has no parameters.
        'kata.extension.devkit.verity_params',
        `kata.extension.checked.verity_params=${parameters}`,
      ],
    })
    try {
      const mounts = [bind('/run/kata-extensions', '/extensions')]
      expect(await pod.output('look', 'cat /extensions/*/name', { mounts })).toBe('checked\ndevkit\n')
      const write = 'touch /extensions/devkit/new 2>&1 || true'
      expect(await pod.output('write', write, { mounts })).toContain('Read-only file system')

      const console = await dialGuest(guest, 1026)
      console.write('echo $((40+2)) $(readlink /proc/$$/exe); umount -l /run/kata-extensions/devkit; exit\n')
      expect(await text(console)).toContain('\n42 /run/kata-extensions/devkit/bin/busybox\r\n')
      // The shell of `npm run image -- --with debug-shell` is still in use.
      const address = `hvsock://${guestSocketIn(guest.folder)}`
      const typed = await ctl(['-a', address, 'console'], {
        stdin: 'echo $((40+3)) $(readlink /proc/$$/exe) $(ip -o link | wc -l); exit\n',
      })
      expect(typed).toMatchObject({
        status: 0,
        stderr: '',
        stdout: expect.stringMatching(/^43 \/usr\/bin\/busybox \d+\r?$/m),
      })
      const log = await dialGuest(guest, 1025)
      let lines = ''
      for await (const chunk of log) {
        lines += String(chunk)
        if (lines.includes('"debug console closed"')) break
      }
      for (const msg of ['booted', 'boot step', 'listening']) expect(lines).toContain(`"msg":"${msg}"`)
    } finally {
      await guest.stop()
    }
  })

  function erofsOf(name: string, fill: (tree: string) => void = () => {}): string {
    const [tree, image] = [join(folder, `${name}-tree`), join(folder, `${name}.erofs`)]
    mkdirSync(tree)
    fill(tree)
    writeFileSync(join(tree, 'name'), `${name}\n`)
    execFileSync('mkfs.erofs', ['--quiet', image, tree])
    return image
  }

  /** A disk with the image in its first partition and the hashes in its second, and its `verity_params`. */
  function withHashes(image: string) {
    const hashes = `${image}.hashes`
    const format = ['format', '--no-superblock', `--salt=${SALT}`, image, hashes]
    const said = execFileSync('veritysetup', format, { encoding: 'utf8' })
    const [, rootHash = ''] = /^Root hash:\s+(\w+)$/m.exec(said) ?? []
    const blocks = statSync(image).size / 4096
    const place = (number: number): Partition => ({
      number,
      startBytes: number * MEBIBYTE,
      sizeBytes: MEBIBYTE,
    })
    const disk = `${image}.disk`
    writeFileSync(disk, partitionTable([place(1), place(2)], 0))
    for (const [index, part] of [image, hashes].entries()) {
      truncateSync(disk, (index + 1) * MEBIBYTE)
      appendFileSync(disk, readFileSync(part))
    }
    truncateSync(disk, 3 * MEBIBYTE)
    const fields = { root_hash: rootHash, salt: SALT, data_blocks: blocks, data_block_size: 4096 }
    return {
      disk,
      parameters: Object.entries({ ...fields, hash_block_size: 4096 })
        .map(([field, value]) => `${field}=${value}`)
        .join(','),
    }
  }
})

function addShell(bin: string): void {
  mkdirSync(bin)
  copyFileSync('/bin/busybox', join(bin, 'busybox'))
  const busybox = '/run/kata-extensions/devkit/bin/busybox'
  writeFileSync(join(bin, 'devkit-sh'), `#!${busybox} sh\nexec ${busybox} sh -i\n`, { mode: 0o755 })
}
