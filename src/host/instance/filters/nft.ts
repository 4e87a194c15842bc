import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { promisify } from 'node:util'
import { AgentError, messageOf } from '../../../base/errors.ts'
import { noSuchProgram, placesOf } from '../../qemu/find-program.ts'
import type { Ruleset } from './tap-rules.ts'

/** The packet filters of this host. All reject with FAILED_PRECONDITION and the words of nft(8). */
export interface PacketFilters {
  /** Whether this host can carry out the commands. */
  check(ruleset: Ruleset): Promise<void>
  /** Carries out all commands or none. */
  apply(ruleset: Ruleset): Promise<void>
  /** Carries out all commands, in the words of nft(8), or none. */
  run(commands: string): Promise<void>
}

/** A daemon's PATH may lack these. */
const ADMINISTRATORS = ['/usr/sbin', '/sbin']
/** For one call of nft(8). */
const NFT_MS = 10_000
/** Of its output that an error tells. */
const MAX_TOLD = 300

export function nftFilters(): PacketFilters {
  return {
    check: (ruleset) => runNft('--check', '-j', JSON.stringify(ruleset)),
    apply: (ruleset) => runNft('-j', JSON.stringify(ruleset)),
    run: (commands) => runNft('--', commands),
  }
}

async function runNft(...words: readonly string[]): Promise<void> {
  const program = placesOf('nft', ADMINISTRATORS).find((path) => existsSync(path))
  if (program === undefined) throw noSuchProgram('nft')
  try {
    // It cannot open a stdin that is a socket, as Node's pipes are.
    await promisify(execFile)(program, words, { timeout: NFT_MS })
  } catch (error) {
    const text = error instanceof Error && 'stderr' in error ? String(error.stderr) : messageOf(error)
    const [line = ''] = text.trim().split('\n')
    throw new AgentError('FAILED_PRECONDITION', `nft: ${line.slice(0, MAX_TOLD)}`, { cause: error })
  }
}

/** Names the field in a failure of its filter. */
export async function filtered(path: string, work: Promise<void>): Promise<void> {
  await work.catch((error) => {
    throw new AgentError('FAILED_PRECONDITION', `${path}: ${messageOf(error)}`, { cause: error })
  })
}
