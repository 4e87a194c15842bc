import packageJson from '../../package.json' with { type: 'json' }
import { linuxStateFiles } from '../os/files/state-files.ts'
import { findAgentFolder, loadNative } from '../os/native.ts'
import { writeOut } from '../os/streams/stdout.ts'
import { printState } from '../state/print-state.ts'
import { STATE_FOLDER } from './boot/state-folder.ts'

/** Answers `--version` and `--print-state`. `file` is the running one. */
export function print(what: 'version' | 'state', file: string): void {
  const { name, version } = packageJson
  const saved = () => printState(linuxStateFiles(loadNative(findAgentFolder(file)), STATE_FOLDER))
  writeOut(`${what === 'version' ? `${name} ${version}` : saved()}\n`)
}
