import { chmodSync, copyFileSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { buildSync } from 'esbuild'

/** Prints so many zeros for `print NUMBER`, reads no more after `deaf`, and echoes other words. */
const CONSOLE = `
while read -r word number; do
  case $word in
    print) head -c "$number" /dev/zero ;;
    deaf) exec sleep 1000 ;;
    *) echo "$word" ;;
  esac
done`

/** Writes a program that stands in for QEMU, with QMP and a console, for all users. Returns the folder to put on PATH. */
export function standInQemu(folder: string): string {
  const bin = join(folder, 'bin')
  mkdirSync(bin, { recursive: true })
  for (const path of [folder, bin]) chmodSync(path, 0o755)
  const [node, program] = [join(bin, 'node'), join(bin, 'qmp.cjs')]
  copyFileSync(process.execPath, node)
  const bundle = { bundle: true, platform: 'node', outfile: program } as const
  buildSync({ ...bundle, entryPoints: [join(import.meta.dirname, 'stand-in-qmp.ts')] })
  const qmp = `${node} ${program} "$@" </dev/null >/dev/null`
  writeFileSync(join(bin, 'qemu-system-x86_64'), `#!/bin/sh\n${qmp} &\n${CONSOLE}\n`, { mode: 0o755 })
  return bin
}
