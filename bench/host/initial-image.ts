import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pinnedNode } from '../../src/build/project.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { prepareRootDisk } from '../../src/host/root-disk/prepare-root-disk.ts'
import { median, report } from '../support/figure.ts'

/**
 * An image of 1 GiB from a server of this host to a root disk, against curl to a file of the same file system. A prepared
 * disk is durable, so curl's file is synced, too; the figure against curl alone is the last one.
 */
const MEBIBYTES = 1024
const ROUNDS = 3

const folder = makeTemporaryFolder(tmpdir())
const server = spawn(
  pinnedNode(),
  [join(import.meta.dirname, '../support/image-server.ts'), `${MEBIBYTES}`],
  {
    stdio: ['ignore', 'pipe', 'inherit'],
  },
)
try {
  const [port] = await once(server.stdout, 'data')
  const url = `http://127.0.0.1:${String(port).trim()}/image`
  const [file, disk, stateFile] = ['curl.img', 'root.img', 'root.json'].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ]
  const times = { curl: [], sync: [], digest: [], plain: [], checked: [] } as Record<string, number[]>
  for (let round = 0; round < ROUNDS; round++) {
    await time('curl', () => execFileSync('curl', ['--silent', '--output', file, url]))
    await time('sync', () => execFileSync('sync', [file]))
    let digest = ''
    await time('digest', () => {
      digest = execFileSync('openssl', ['dgst', '-sha256', '-r', file], { encoding: 'utf8' }).slice(0, 64)
    })
    rmSync(file)
    await time('plain', () => prepareRootDisk({ url, disk, stateFile }))
    forget()
    await time('checked', () => prepareRootDisk({ url: `${url}#sha256=${digest}`, disk, stateFile }))
    forget()
  }
  const of = (name: string) => median(times[name] ?? [])
  const durable = of('curl') + of('sync')
  const [figure, unit, limit] = [`initial image of ${MEBIBYTES} MiB`, 'ms', 1.15] as const
  report({ figure, value: of('plain'), unit, floor: durable, limit })
  report({
    figure: `${figure}, with digest`,
    value: of('checked'),
    unit,
    floor: durable + of('digest'),
    limit,
  })
  report({ figure: `${figure}, against curl alone`, value: of('plain'), unit, floor: of('curl'), limit })

  async function time(name: string, work: () => unknown): Promise<void> {
    const begin = performance.now()
    await work()
    times[name]?.push(performance.now() - begin)
  }

  function forget(): void {
    for (const path of [disk, stateFile]) rmSync(path)
  }
} finally {
  server.kill()
  removeTemporaryFolder(folder)
}
