import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import type { RequestListener } from 'node:http'
import { join } from 'node:path'
import { vi } from 'vitest'
import { extractPackage, fetchPackages } from '../../../../src/debian/packages.ts'
import { endChild } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'

const LIBRARIES = '/usr/lib/x86_64-linux-gnu'
const PACKAGES = ['qemu-block-extra', 'libiscsi7', 'tgt', 'librdmacm1', 'libibverbs1']
const MORE = ['libnl-3-200', 'libnl-route-3-200', 'libconfig-general-perl']

/** Debian's packages for disks of servers, unpacked. */
export interface DiskPackages {
  readonly folder: string
  /** Has QEMU use them: words of a shell in a mount namespace. */
  readonly mount: string
}

/** Undefined where Debian has them for another QEMU than this host's. */
export async function diskPackages(): Promise<DiskPackages | undefined> {
  const [, installed] = execFileSync('dpkg-query', ['-W', 'qemu-system-common'], { encoding: 'utf8' }).split(
    /\s/,
  )
  const progress = (line: string) => process.stderr.write(`${line}\n`)
  const packages = await fetchPackages({ suite: 'bookworm', packages: [...PACKAGES, ...MORE], progress })
  if (packages.find(({ name }) => name === 'qemu-block-extra')?.version !== installed) return undefined
  const folder = temporaryFolder()
  for (const { path } of packages) await extractPackage(path, folder)
  // The user of an instance loads them, who may not pass the folders above.
  const layers = `lowerdir=${join(folder, LIBRARIES)}:${LIBRARIES}`
  return { folder, mount: `mount -t overlay -o "${layers}" overlay ${LIBRARIES}` }
}

/** Answers as a server of a disk for those who know the password of `web`. `asked` gets what each request has shown. */
export function diskByHttp(disk: Buffer, password: string, asked: string[]): RequestListener {
  const known = `Basic ${Buffer.from(`web:${password}`).toString('base64')}`
  return ({ headers, method }, answer) => {
    asked.push(headers.authorization ?? '')
    if (headers.authorization !== known)
      return void answer.writeHead(401, { 'www-authenticate': 'Basic realm="disks"' }).end()
    const [, first = 0, last = disk.length - 1] = /^bytes=(\d+)-(\d+)$/.exec(headers.range ?? '') ?? []
    const part = disk.subarray(Number(first), Number(last) + 1)
    answer.writeHead(headers.range === undefined ? 200 : 206, {
      'accept-ranges': 'bytes',
      'content-length': part.length,
      'content-range': `bytes ${first}-${Number(first) + part.length - 1}/${disk.length}`,
    })
    answer.end(method === 'HEAD' ? undefined : part)
  }
}

export const TARGET = 'iqn.2026-11.example:disk'

/** Serves a file as unit 1 of {@link TARGET} by iSCSI to those who know the password of `web`. */
export async function diskByIscsi(
  { folder }: DiskPackages,
  path: string,
  password: string,
): Promise<{ readonly pid: number; readonly portal: string; close(): Promise<void> }> {
  const own = temporaryFolder()
  const port = 20_000 + (process.pid % 10_000)
  const portal = `127.0.0.1:${port}`
  const env = { ...process.env, LD_LIBRARY_PATH: join(folder, LIBRARIES), TGT_IPC_SOCKET: join(own, 'ipc') }
  const control = ['-C', `${port}`]
  const server: ChildProcess = spawn(
    join(folder, 'usr/sbin/tgtd'),
    ['-f', ...control, '--iscsi', `portal=${portal}`],
    { env, stdio: 'ignore' },
  )
  await vi.waitUntil(() => existsSync(`${env.TGT_IPC_SOCKET}.${port}`), { timeout: 20_000 })
  for (const words of [
    `--mode target --op new --tid 1 -T ${TARGET}`,
    `--mode logicalunit --op new --tid 1 --lun 1 -b ${path}`,
    `--mode account --op new --user web --password ${password}`,
    '--mode account --op bind --tid 1 --user web',
    '--mode target --op bind --tid 1 -I ALL',
  ])
    execFileSync(join(folder, 'usr/sbin/tgtadm'), [...control, '--lld', 'iscsi', ...words.split(' ')], {
      env,
    })
  return { pid: server.pid ?? 0, portal, close: () => endChild(server, 'SIGKILL') }
}
