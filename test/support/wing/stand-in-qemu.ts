import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** Prints so many zeros for `print NUMBER`, reads no more after `deaf`, and echoes other words. */
const CONSOLE = `
while read -r word number; do
  case $word in
    print) head -c "$number" /dev/zero ;;
    deaf) exec sleep 1000 ;;
    *) echo "$word" ;;
  esac
done`

/** Writes a program that stands in for QEMU, with QMP and a console. Returns the folder to put on PATH. */
export function standInQemu(folder: string): string {
  const bin = join(folder, 'bin')
  mkdirSync(bin, { recursive: true })
  const qmp = `${process.execPath} ${join(import.meta.dirname, 'stand-in-qmp.ts')} "$@" </dev/null >/dev/null`
  writeFileSync(join(bin, 'qemu-system-x86_64'), `#!/bin/sh\n${qmp} &\n${CONSOLE}\n`, { mode: 0o755 })
  return bin
}
