"""Problems to train and to test on."""
