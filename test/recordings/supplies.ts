import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { RecordedCall } from '../../src/ctl/recording/recording.ts'
import { CreateContainerRequest } from '../../src/gen/agent.ts'
import { busyboxRoot } from '../support/containers/busybox-root.ts'

/** The guest's folder in which all shims share root file systems. */
export const SHARED_FOLDER = '/run/kata-containers/shared/containers/'

/**
 * Makes a root with the programs of all recorded containers in `folder` and returns its path; `programs` limits those of
 * busybox.
 */
export function recordedRoot(folder: string, programs?: readonly string[]): string {
  const root = busyboxRoot(folder, programs)
  chmodSync(join(root, 'tmp'), 0o1777)
  program(join(root, 'pause'), 'while :; do sleep 1000; done')
  // It needs more memory than its container may have.
  program(join(root, 'bin/memhog'), 'echo 0; echo 16; exec dd if=/dev/zero of=/dev/null bs="$1M" count=1')
  writeFileSync(join(root, 'etc/passwd'), 'root:x:0:0::/:/bin/sh\napp:x:1000:1000::/:/bin/sh\n')
  writeFileSync(join(root, 'etc/group'), 'root:x:0:\napp:x:1000:\nextra:x:2000:app\n')
  return root
}

function program(path: string, script: string): void {
  writeFileSync(path, `#!/bin/sh\n${script}\n`)
  chmodSync(path, 0o755)
}

/** The host's files at the mount points of the recorded containers. */
const FILES: Readonly<Record<string, string>> = {
  '/mnt-file': 'busybox\n',
  '/volfile': 'filevol\n',
  '/etc/hostname': 'recorded\n',
  '/etc/hosts': '127.0.0.1 localhost\n',
  '/etc/resolv.conf': 'search example.test\nnameserver 10.88.0.53\noptions ndots:2\n',
}
const FOLDERS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  '/voldir': { f1: 'from-host\n' },
}

export function isShared(path: string): boolean {
  return path.startsWith(SHARED_FOLDER)
}

/** The file's text, or the texts of the folder's files, at a mount point of the recorded containers. */
export function suppliesOf(destination: string): string | Readonly<Record<string, string>> {
  const supplies = FILES[destination] ?? FOLDERS[destination]
  if (supplies === undefined) throw new Error(`mount ${destination}: nothing to supply`)
  return supplies
}

/**
 * Before a CreateContainer, supplies its root, and the sources of its mounts unless the caller copies them. `locate`
 * translates a path of the guest to this side.
 */
export function supplyContainer(
  { method, requestBytes = Buffer.alloc(0) }: RecordedCall,
  root: string,
  locate: (path: string) => string,
  hasSharedFolder = true,
): void {
  if (method !== 'CreateContainer') return
  const { OCI } = CreateContainerRequest.decode(requestBytes)
  supplyRoot(root, locate(OCI?.Root?.Path ?? ''))
  if (!hasSharedFolder) return
  for (const { source, destination } of OCI?.Mounts ?? []) {
    if (isShared(source)) supplyMount(locate(source), suppliesOf(destination))
  }
}

/** Replaces a root of an earlier replay. */
export function supplyRoot(root: string, path: string): void {
  rmSync(path, { recursive: true, force: true })
  mkdirSync(dirname(path), { recursive: true })
  // cpSync would lose the mode of /tmp.
  execFileSync('cp', ['-a', root, path])
}

function supplyMount(path: string, supplies: ReturnType<typeof suppliesOf>): void {
  mkdirSync(dirname(path), { recursive: true })
  if (typeof supplies === 'string') writeFileSync(path, supplies)
  else {
    mkdirSync(path, { recursive: true })
    for (const [name, text] of Object.entries(supplies)) writeFileSync(join(path, name), text)
  }
}
