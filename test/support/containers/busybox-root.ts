import { execFileSync } from 'node:child_process'
import { copyFileSync, mkdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'

/** Makes a container root of Debian's static busybox in `folder` and returns its path. */
export function busyboxRoot(folder: string): string {
  const root = join(folder, 'root')
  for (const name of ['bin', 'dev', 'etc', 'proc', 'sys', 'tmp'])
    mkdirSync(join(root, name), { recursive: true })
  copyFileSync('/bin/busybox', join(root, 'bin/busybox'))
  const applets = execFileSync('/bin/busybox', ['--list'], { encoding: 'utf8' }).trim().split('\n')
  for (const name of applets) if (name !== 'busybox') symlinkSync('busybox', join(root, 'bin', name))
  return root
}
