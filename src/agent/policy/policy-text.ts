// What can be told from the text of a policy, to spare work. Each answer is right whatever the text is: where it is not
// certain that a rule does without something, it may need it.

/** Whether a rule may read the input: Rego reaches it by the word `input` alone. */
export function mayReadInput(text: string): boolean {
  return /\binput\b/.test(withoutComments(text))
}

/** Whether a rule may read the input's member `field`: the word `input` stands elsewhere than in `input.OTHER`. */
export function mayReadField(text: string, field: string): boolean {
  return new RegExp(`\\binput\\b(?!\\.(?!${field}\\b)[A-Za-z_])`).test(withoutComments(text))
}

/**
 * Whether the same input and the same state always give the same value: every function of Rego that gives another value
 * at another time has one of these names before a dot or a bracket.
 */
export function isDeterministic(text: string): boolean {
  return !/\b(http|io|net|opa|rand|time|uuid)\s*[.[]/.test(text)
}

/** Without the lines that are comments, except those that could end a string that began before them. */
function withoutComments(text: string): string {
  return text.replace(/^[ \t]*#[^"`\r\n\v\f\u0085\u2028\u2029]*$/gm, '')
}
