import { execFileSync } from 'node:child_process'
import { copyFileSync, mkdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'

export function busyboxRoot(folder: string, programs = allPrograms()): string {
  const root = join(folder, 'root')
  for (const name of ['bin', 'dev', 'etc', 'proc', 'sys', 'tmp'])
    mkdirSync(join(root, name), { recursive: true })
  copyFileSync('/bin/busybox', join(root, 'bin/busybox'))
  for (const name of programs) if (name !== 'busybox') symlinkSync('busybox', join(root, 'bin', name))
  return root
}

function allPrograms(): readonly string[] {
  return execFileSync('/bin/busybox', ['--list'], { encoding: 'utf8' }).trim().split('\n')
}
