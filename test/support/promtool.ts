import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { cached } from '../../src/build/cache.ts'
import { tool } from '../../src/build/tool.ts'
import { fetchPackages } from '../../src/debian/packages.ts'

/** Prometheus' own program, from Debian's package, of which nothing else is unpacked and nothing is installed. */
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

/** What `promtool check metrics` finds wrong with a text, one line for each; throws when it cannot parse it. */
export async function checkMetrics(text: string): Promise<readonly string[]> {
  const { status, stderr } = spawnSync(await findPromtool(), ['check', 'metrics'], {
    input: text,
    encoding: 'utf8',
    timeout: 20_000,
  })
  // 3: it has remarks. 1: it cannot parse the text.
  if (status !== 0 && status !== 3) throw new Error(`promtool: status ${status}: ${stderr}`)
  return stderr.split('\n').filter((line) => line !== '')
}
