import { didYouMean } from '../../base/suggest.mjs'
import { AGENT_WORDS, unknownWords } from '../../settings/command-line.ts'
import { type RunOptions, UsageError } from '../command-line/parse.mjs'

/** Throws {@link UsageError} for an `agent.*` word that the agent does not know. The agent of `--image` may know others. */
export function checkAppendedWords({ append, image }: Pick<RunOptions, 'append' | 'image'>): void {
  const [word] = image === undefined ? unknownWords(append.join(' ')) : []
  if (word === undefined) return
  const remedy = didYouMean(word, AGENT_WORDS, 'want one of docs/configuration.md')
  throw new UsageError(`--append ${word}: unknown setting${remedy}`)
}
