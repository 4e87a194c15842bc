import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { cached } from '../../../src/build/cache.ts'
import { tool } from '../../../src/build/tool.ts'
import { fetchPackages } from '../../../src/debian/packages.ts'

/** Downloads Debian's package and unpacks only the program; nothing is installed. */
async function findPromtool(): Promise<string> {
  if (existsSync('/usr/bin/promtool')) return '/usr/bin/promtool'
  const progress = (line: string) => void process.stderr.write(`${line}\n`)
  const [fetched] = await fetchPackages({ suite: 'bookworm', packages: ['prometheus'], progress })
  if (fetched === undefined) throw new Error('Debian bookworm: no package prometheus')
  const folder = await cached('promtool', { values: [fetched.version] }, async (target) => {
    const pipe = 'dpkg-deb --fsys-tarfile "$1" | tar --extract --directory "$2" ./usr/bin/promtool'
    await tool('sh', ['-c', pipe, 'sh', fetched.path, target], { debianPackage: 'dpkg tar' })
  })
  return join(folder, 'usr/bin/promtool')
}

export async function checkMetrics(text: string): Promise<readonly string[]> {
  const { status, stderr } = spawnSync(await findPromtool(), ['check', 'metrics'], {
    input: text,
    encoding: 'utf8',
    timeout: 20_000,
  })
  // Status 3 means remarks; 1 means that it cannot parse the text.
  if (status !== 0 && status !== 3) throw new Error(`promtool: status ${status}: ${stderr}`)
  return stderr.split('\n').filter((line) => line !== '')
}
